#include "runtime/process/private_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/owner_mark.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

// The prefix narrows the search. Only a mark proves that a folder is ours.
constexpr std::string_view kPrefix = "dsrun-job-";

// Returns a name with 132 random bits, which is unique and cannot be guessed.
std::string DrawName() {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  constexpr int kCount = 22;  // letters of six bits each
  std::random_device random;
  std::string name(kPrefix);
  for (int i = 0; i < kCount; ++i) name += kLetters[random() % kLetters.size()];
  return name;
}

UniqueFd OpenFolder(const fs::path& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// Removes the mark last, so that the next process can finish an interrupted removal.
void RemoveFolder(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(folder, error))) return;  // a link has replaced it
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename() != kOwnerFile) entries.push_back(entry->path());
  }
  for (const fs::path& entry : entries) fs::remove_all(entry, error);
  ::unlink((folder / kOwnerFile).c_str());
  ::rmdir(folder.c_str());
}

void RemoveLeft(const fs::path& base) {
  std::error_code error;
  for (fs::directory_iterator entry(base, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(kPrefix)) continue;
    const UniqueFd folder = OpenFolder(entry->path());
    if (folder.valid() && LockAbandoned(folder.get(), MarkLocation::kFile, LOCK_EX)) {
      RemoveFolder(entry->path());
    }
  }
}

// Takes a shared lock. Returns false when the folder is being removed, or has been.
bool Hold(const UniqueFd& folder) {
  if (!folder.valid()) return false;
  if (::flock(folder.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  struct stat info {};
  return ::fstat(folder.get(), &info) == 0 && info.st_nlink > 0;
}

std::vector<std::string> ListBases() {
  // A socket's path may have 107 bytes: our part has 33, and ssh's "/master.", with 16 letters, 24.
  constexpr std::size_t kLongestBase = 48;
  std::vector<std::string> bases;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/' && std::string_view(runtime).size() <= kLongestBase) {
    bases.emplace_back(runtime);
  }
  bases.emplace_back("/tmp");
  return bases;
}

// Returns OK when `folder` is a directory, not a link, owned by this user and closed to others.
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
    const fs::path path = fs::path(base) / DrawName();
    if (::mkdir(path.c_str(), 0700) != 0) {
      last = ErrnoError(errno, base + ": cannot make a private folder");
      continue;
    }
    UniqueFd folder = OpenFolder(path);
    Status status = Hold(folder) ? OkStatus() : ErrnoError(errno, path.string());
    // Without /proc there is no mark, and no other process ever removes the folder.
    const std::string mark = MakeOwnMark();
    if (status.ok() && !mark.empty()) status = LeaveMark(folder.get(), MarkLocation::kFile, mark);
    if (status.ok()) return PrivateFolder(path, std::move(folder));
    RemoveFolder(path);
    last = status.WithContext(path.string());
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
  if (!path_.empty()) RemoveFolder(path_);
  path_.clear();
  lock_.Reset();
}

void PrivateFolder::RemoveIfUnused() const {
  std::error_code error;
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename() != kOwnerFile) return;
  }
  if (!error) RemoveFolder(path_);
}

}  // namespace ds
