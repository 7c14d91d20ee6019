#include "runtime/base/owner_mark.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <sstream>

#include "runtime/base/files.h"
#include "runtime/base/process_stat.h"
#include "runtime/base/unique_fd.h"

namespace ds {
namespace {

constexpr char kOwnerAttribute[] = "user.dsrun.owner";
constexpr std::size_t kLongestMark = 256;

std::string ReadBootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

// Returns the start time of a running process in clock ticks since the boot; 0 for a zombie or an
// unused pid.
std::uint64_t ReadStart(pid_t pid) {
  const std::optional<ProcessStat> stat = ReadProcessStat(pid);
  const bool lives = stat.has_value() && stat->state != 'Z' && stat->state != 'X';
  return lives ? stat->start : 0;
}

// Returns " DEVICE INODE" of the folder, the suffix of its mark file. It differs in a copy of the
// folder, so a copied mark is invalid. Returns "" when fstat fails.
std::string DescribeLocation(int folder) {
  struct stat info {};
  if (::fstat(folder, &info) != 0) return "";
  return " " + std::to_string(info.st_dev) + " " + std::to_string(info.st_ino);
}

// Returns the mark without its suffix; "" unless this user wrote the file in this very folder.
std::string ReadMarkFile(int folder) {
  const UniqueFd file(::openat(folder, kOwnerFile, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  const bool ours = file.valid() && ::fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode) &&
                    info.st_uid == ::geteuid();
  if (!ours) return "";
  std::array<char, kLongestMark> text{};
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  std::string mark(text.data(), static_cast<std::size_t>(size > 0 ? size : 0));
  if (mark.ends_with('\n')) mark.pop_back();
  const std::string location = DescribeLocation(folder);
  if (location.empty() || !mark.ends_with(location)) return "";
  return mark.substr(0, mark.size() - location.size());
}

}  // namespace

std::string MakeOwnMark() {
  const std::string boot = ReadBootId();
  const std::uint64_t start = ReadStart(::getpid());
  if (boot.empty() || start == 0) return "";
  return boot + " " + std::to_string(::getpid()) + " " + std::to_string(start);
}

bool IsOwnerGone(std::string_view mark) {
  std::istringstream words{std::string(mark)};
  std::string boot, rest;
  pid_t pid = 0;
  std::uint64_t start = 0;
  if (!(words >> boot >> pid >> start) || words >> rest || pid <= 0 || start == 0) return false;
  // With another boot ID the owner may still run, on another machine that shares the folder.
  return boot == ReadBootId() && ReadStart(pid) != start;
}

Status LeaveMark(int folder, MarkLocation location, std::string_view mark) {
  if (location == MarkLocation::kAttribute) {
    const int set = ::fsetxattr(folder, kOwnerAttribute, mark.data(), mark.size(), 0);
    return set == 0 ? OkStatus() : ErrnoError(errno, kOwnerAttribute);
  }
  const UniqueFd file(
      ::openat(folder, kOwnerFile, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) return ErrnoError(errno, kOwnerFile);
  return WriteAll(file.get(), std::string(mark) + DescribeLocation(folder) + "\n", kOwnerFile);
}

bool LockAbandoned(int folder, MarkLocation location, int lock) {
  return IsOwnerGone(ReadMark(folder, location)) && ::flock(folder, lock | LOCK_NB) == 0;
}

std::string ReadMark(int folder, MarkLocation location) {
  if (location == MarkLocation::kFile) return ReadMarkFile(folder);
  std::array<char, kLongestMark> text{};
  const ssize_t size = ::fgetxattr(folder, kOwnerAttribute, text.data(), text.size());
  return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : "";
}

}  // namespace ds
