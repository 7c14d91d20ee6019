#include "runtime/process/private_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace ds {
namespace {

namespace fs = std::filesystem;

// Nothing else of ours is called so: what is not held may go.
constexpr std::string_view kPrefix = "dsrun-job-";

UniqueFd OpenFolder(const fs::path& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool IsOurs(const UniqueFd& folder) {
  struct stat info {};
  return ::fstat(folder.get(), &info) == 0 && info.st_uid == ::geteuid();
}

void RemoveLeft(const fs::path& base) {
  std::error_code error;
  for (fs::directory_iterator entry(base, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(kPrefix)) continue;
    const UniqueFd folder = OpenFolder(entry->path());
    if (!folder.valid() || !IsOurs(folder)) continue;
    if (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) continue;
    std::error_code ignored;
    fs::remove_all(entry->path(), ignored);
  }
}

// A shared lock; none when the folder is being removed, or has been.
bool Hold(const UniqueFd& folder) {
  if (!folder.valid()) return false;
  if (::flock(folder.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  struct stat info {};
  return ::fstat(folder.get(), &info) == 0 && info.st_nlink > 0;
}

std::vector<std::string> ListBases() {
  constexpr std::size_t kLongestBase = 64;  // a socket's path may have 107 bytes
  std::vector<std::string> bases;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/' && std::string_view(runtime).size() <= kLongestBase) {
    bases.emplace_back(runtime);
  }
  bases.emplace_back("/tmp");
  return bases;
}

// OK when `folder` is a directory, no link, that this user owns and nobody else may enter.
Status CheckPrivate(const fs::path& folder) {
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0) return ErrnoError(errno, folder.string());
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() ||
      (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return PermissionDeniedError(folder.string() + ": the folder must be yours alone (chmod 700)");
  }
  return OkStatus();
}

}  // namespace

StatusOr<PrivateFolder> PrivateFolder::Make() {
  Status last;
  for (const std::string& base : ListBases()) {
    RemoveLeft(base);
    while (true) {
      std::string path = base + "/" + std::string(kPrefix) + "XXXXXX";
      if (::mkdtemp(path.data()) == nullptr) {  // its mode is 0700
        last = ErrnoError(errno, base + ": cannot make a private folder");
        break;
      }
      UniqueFd folder = OpenFolder(path);
      if (!folder.valid() && errno != ENOENT) return ErrnoError(errno, path);
      // Another process may have taken it for one that was left behind: another one, then.
      if (Hold(folder)) return PrivateFolder(path, std::move(folder));
    }
  }
  return last;
}

StatusOr<PrivateFolder> PrivateFolder::Join(const fs::path& path) {
  UniqueFd folder = OpenFolder(path);
  if (!folder.valid()) return ErrnoError(errno, path.string());
  DS_RETURN_IF_ERROR(CheckPrivate(path));
  if (!Hold(folder)) return NotFoundError(path.string() + " is being removed");
  return PrivateFolder(path, std::move(folder));
}

void PrivateFolder::RemoveAbandoned() {
  for (const std::string& base : ListBases()) RemoveLeft(base);
}

void PrivateFolder::Remove() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  path_.clear();
  lock_.Reset();
}

}  // namespace ds
