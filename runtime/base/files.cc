#include "runtime/base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>

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
  // A sparse file may claim more than there is memory.
  if (static_cast<std::uint64_t>(info.st_size) > max_bytes) return too_large;
  std::string content;
  content.reserve(static_cast<std::size_t>(info.st_size));
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, path.string());
    if (got == 0) return content;
    if (content.size() + static_cast<std::size_t>(got) > max_bytes) return too_large;
    content.append(buffer, static_cast<std::size_t>(got));
  }
}

Status WriteAll(int fd, std::string_view bytes, std::string_view what) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      // Whoever shares the open file may have made it non-blocking. Its end or an error ends the
      // wait, too.
      pollfd writable{fd, POLLOUT, 0};
      ::poll(&writable, 1, -1);
      continue;
    }
    if (written < 0) return ErrnoError(errno, what);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return OkStatus();
}

namespace {

struct TemporaryFile {
  UniqueFd fd;
  std::string path;
};

// Beside `path`, made by open(2): mkstemp knows no umask.
StatusOr<TemporaryFile> MakeTemporary(const fs::path& path, unsigned mode) {
  std::random_device random;
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::string name = path.string() + "." + std::to_string(random());
    UniqueFd fd(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (fd.valid()) return TemporaryFile{std::move(fd), std::move(name)};
    if (errno != EEXIST) break;
  }
  return ErrnoError(errno, path.string());
}

}  // namespace

Status WriteFileAtomically(const fs::path& path, std::string_view content, unsigned mode,
                           Durability durability) {
  const bool durable = durability == Durability::kDurable;
  DS_ASSIGN_OR_RETURN(const TemporaryFile temporary, MakeTemporary(path, mode));
  const int fd = temporary.fd.get();
  Status status = WriteAll(fd, content, path.string());
  if (status.ok() && durable && ::fsync(fd) != 0) status = ErrnoError(errno, path.string());
  if (status.ok() && ::rename(temporary.path.c_str(), path.c_str()) != 0) {
    status = ErrnoError(errno, path.string());
  }
  if (!status.ok()) {
    ::unlink(temporary.path.c_str());
    return status;
  }
  if (!durable) return OkStatus();
  return SyncDirectory(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

Status MakeDirectories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return ErrnoError(error.value(), path.string());
  return OkStatus();
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

Status SyncDirectory(const fs::path& folder) {
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoError(errno, folder.string());
  // Some file systems cannot fsync a folder and say so with EINVAL; there is nothing more to do
  // there.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) return ErrnoError(errno, folder.string());
  return OkStatus();
}

Status RenameDurably(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) != 0) {
    return ErrnoError(errno, from.string() + " -> " + to.string());
  }
  return SyncDirectory(to.has_parent_path() ? to.parent_path() : fs::path("."));
}

StatusOr<AppendFile> AppendFile::Open(const fs::path& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoError(errno, path.string());
  return AppendFile(std::move(fd), path);
}

Status AppendFile::Append(std::string_view text) {
  return WriteAll(fd_.get(), text, path_.string());
}

std::string ShownPath(const fs::path& path) {
  std::error_code error;
  const fs::path here = fs::current_path(error);
  if (error || path.is_relative()) return path.string();
  const fs::path relative = path.lexically_relative(here);
  return relative.empty() || relative == "." || *relative.begin() == ".." ? path.string()
                                                                          : relative.string();
}

StatusOr<fs::path> OwnExecutable() {
  std::error_code error;
  fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error) return ErrnoError(error.value(), "/proc/self/exe");
  return path;
}

}  // namespace ds
