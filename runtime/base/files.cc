#include "runtime/base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "runtime/base/lfs_pointer.h"
#include "runtime/base/parse_number.h"

namespace ds {
namespace fs = std::filesystem;

StatusOr<std::string> ReadFile(const fs::path& path, std::uint64_t max_bytes) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoError(errno, path.string());
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoError(errno, path.string());
  if (S_ISDIR(info.st_mode)) return ErrnoError(EISDIR, path.string());
  const Status too_large = ResourceExhaustedError(path.string() + ": larger than " +
                                                  std::to_string(max_bytes) + " bytes");
  // Check the size before memory is reserved: a sparse file may claim more than there is.
  if (static_cast<std::uint64_t>(info.st_size) > max_bytes) return too_large;
  std::string content;
  content.reserve(static_cast<std::size_t>(info.st_size));
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, path.string());
    if (got == 0) break;
    if (content.size() + static_cast<std::size_t>(got) > max_bytes) return too_large;
    content.append(buffer, static_cast<std::size_t>(got));
  }
  DS_RETURN_IF_ERROR(CheckNoLfsPointer(content).WithContext(path.string()));
  return content;
}

Status WriteAll(int fd, std::string_view bytes, std::string_view what) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      // Another process that shares the open file may have made it non-blocking. poll also returns
      // when the reader has closed its end, and after an error; the next write then fails.
      pollfd writable{fd, POLLOUT, 0};
      ::poll(&writable, 1, -1);
      continue;
    }
    if (written < 0) return ErrnoError(errno, what);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return OkStatus();
}

Status WriteAllAt(int fd, std::uint64_t offset, std::span<const std::byte> bytes,
                  std::string_view what, FileSystem& system) {
  while (!bytes.empty()) {
    // Write has retried calls that a signal interrupted.
    const ssize_t written = system.Write(fd, bytes, static_cast<off_t>(offset));
    if (written < 0) return ErrnoError(static_cast<int>(-written), what);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return OkStatus();
}

namespace {

// Creates, fills and closes the file.
Status WriteNewFile(const fs::path& path, std::string_view content, unsigned mode,
                    Durability durability, FileSystem& system) {
  const int created = system.Open(path, O_WRONLY | O_CREAT | O_EXCL, mode);
  if (created < 0) return ErrnoError(-created, path.string());
  UniqueFd fd(created);
  DS_RETURN_IF_ERROR(
      WriteAllAt(fd.get(), 0, std::as_bytes(std::span(content)), path.string(), system));
  int result = durability == Durability::kDurable ? system.Sync(fd.get()) : 0;
  if (result == 0) result = system.Close(fd.Release());
  return result == 0 ? OkStatus() : ErrnoError(-result, path.string());
}

fs::path FolderOf(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

fs::path NameTemporary(const fs::path& path) {
  std::random_device random;
  return fmt::format("{}.{:08x}{:08x}", path.string(), random(), random());
}

Status WriteFileAtomically(const fs::path& path, std::string_view content, unsigned mode,
                           Durability durability, FileSystem& system) {
  const fs::path temporary = NameTemporary(path);
  Status status = WriteNewFile(temporary, content, mode, durability, system);
  if (status.ok()) {
    const int renamed = system.Rename(temporary, path, 0);
    if (renamed != 0) status = ErrnoError(-renamed, path.string());
  }
  if (!status.ok()) {
    system.Unlink(temporary, 0);
    return status;
  }
  return durability == Durability::kDurable ? SyncDirectory(FolderOf(path), system) : OkStatus();
}

Status MakeDirectories(const fs::path& path, FileSystem& system) {
  std::error_code error;
  if (path.empty() || fs::is_directory(path, error)) return OkStatus();
  DS_RETURN_IF_ERROR(MakeDirectories(path.parent_path(), system));
  const int made = system.MakeDirectory(path);
  // Another process may have created it in between.
  if (made == 0 || fs::is_directory(path, error)) return OkStatus();
  if (made != -EEXIST) return ErrnoError(-made, path.string());
  // A file has this name, or what has it cannot be looked at.
  return ErrnoError(error ? error.value() : ENOTDIR, path.string());
}

int CountNumbered(const fs::path& folder, std::string_view prefix) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
  if (entries == nullptr) return 0;
  int count = 0;
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    if (name.starts_with(prefix) && ParseNumber<unsigned>(name.substr(prefix.size()))) ++count;
  }
  return count;
}

Status SyncDirectory(const fs::path& folder, FileSystem& system) {
  const int opened = system.Open(folder, O_RDONLY | O_DIRECTORY, 0);
  if (opened < 0) return ErrnoError(-opened, folder.string());
  const UniqueFd fd(opened);
  const int synced = system.Sync(fd.get());
  // Some file systems do not support fsync on a folder and return EINVAL. Nothing more can be done
  // then.
  if (synced != 0 && synced != -EINVAL) return ErrnoError(-synced, folder.string());
  return OkStatus();
}

bool LacksRenameFlags(int error) {
  return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP;
}

Status RenameDurably(const fs::path& from, const fs::path& to, FileSystem& system) {
  int renamed = system.Rename(from, to, RENAME_NOREPLACE);
  // Rename without the flag. rename(2) also refuses to replace a folder that has entries.
  if (renamed != 0 && LacksRenameFlags(-renamed)) renamed = system.Rename(from, to, 0);
  if (renamed != 0) return ErrnoError(-renamed, from.string() + " -> " + to.string());
  return SyncDirectory(FolderOf(to), system);
}

Status RemoveTree(const fs::path& path, FileSystem& system) {
  std::error_code error;
  std::vector<std::pair<fs::path, int>> found;
  if (fs::is_directory(fs::symlink_status(path, error))) {
    found.emplace_back(path, AT_REMOVEDIR);
    for (fs::recursive_directory_iterator entry(path, error);
         entry != fs::recursive_directory_iterator(); entry.increment(error)) {
      const bool folder = entry->symlink_status(error).type() == fs::file_type::directory;
      found.emplace_back(entry->path(), folder ? AT_REMOVEDIR : 0);
    }
  } else {
    found.emplace_back(path, 0);
  }
  // The iterator lists a folder before its contents, so remove in reverse order.
  for (auto entry = found.rbegin(); entry != found.rend(); ++entry) {
    const int removed = system.Unlink(entry->first, entry->second);
    if (removed != 0 && removed != -ENOENT) return ErrnoError(-removed, entry->first.string());
  }
  return OkStatus();
}

StatusOr<AppendFile> AppendFile::Open(const fs::path& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoError(errno, path.string());
  return AppendFile(std::move(fd), path);
}

Status AppendFile::Append(std::string_view text) {
  return WriteAll(fd_.get(), text, path_.string());
}

std::string ShortenPath(const fs::path& path) {
  std::error_code error;
  const fs::path here = fs::current_path(error);
  if (error || path.is_relative()) return path.string();
  const fs::path relative = path.lexically_relative(here);
  return relative.empty() || relative == "." || *relative.begin() == ".." ? path.string()
                                                                          : relative.string();
}

StatusOr<fs::path> FindOwnExecutable() {
  std::error_code error;
  fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error) return ErrnoError(error.value(), "/proc/self/exe");
  return path;
}

}  // namespace ds
