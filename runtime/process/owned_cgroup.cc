#include "runtime/process/owned_cgroup.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/base/owner_mark.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGroupPrefix = "dsrun-";
// Limit of passes over the processes of a group that forks as fast as it is killed.
constexpr int kMostPasses = 1000;

UniqueFd OpenGroup(const fs::path& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// Writes "1" to a file of the group; returns false if the group has no such file.
bool SwitchOn(const UniqueFd& folder, const char* name) {
  const UniqueFd file(::openat(folder.get(), name, O_WRONLY | O_CLOEXEC));
  return file.valid() && ::write(file.get(), "1", 1) == 1;
}

// Reads the complete list before any process is killed.
std::string ReadProcesses(const UniqueFd& folder) {
  const UniqueFd file(::openat(folder.get(), "cgroup.procs", O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> part{};
  ssize_t size = 0;
  while ((size = ::read(file.get(), part.data(), part.size())) > 0) {
    text.append(part.data(), static_cast<std::size_t>(size));
  }
  return text;
}

void KillGroup(const UniqueFd& folder) {
  if (SwitchOn(folder, "cgroup.kill")) return;
  // Kernels before 5.14 have no cgroup.kill. A process may fork after it was read and before it is
  // killed, so repeat until a pass finds only killed processes. A frozen process (since 5.2) cannot
  // fork, but dies on SIGKILL.
  SwitchOn(folder, "cgroup.freeze");
  std::set<pid_t> killed;
  for (int pass = 0; pass < kMostPasses; ++pass) {
    std::istringstream processes(ReadProcesses(folder));
    bool any_new = false;
    for (pid_t pid = 0; processes >> pid;) {
      // 0 means a process of another pid namespace, and kill(0) would signal our own group.
      if (pid <= 0 || !killed.insert(pid).second) continue;
      ::kill(pid, SIGKILL);
      any_new = true;
    }
    if (!any_new) return;
  }
}

// Returns when the group has no process left, or at the deadline.
void AwaitEmpty(const UniqueFd& folder, std::chrono::steady_clock::time_point deadline) {
  const UniqueFd events(::openat(folder.get(), "cgroup.events", O_RDONLY | O_CLOEXEC));
  std::array<char, 256> text{};
  ssize_t size = 0;
  while ((size = ::pread(events.get(), text.data(), text.size(), 0)) > 0) {
    const std::string_view said(text.data(), static_cast<std::size_t>(size));
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (said.find("populated 1") == std::string_view::npos || left <= left.zero()) return;
    pollfd changed{events.get(), POLLPRI, 0};
    ::poll(&changed, 1, static_cast<int>(left.count()));
  }
}

}  // namespace

StatusOr<std::unique_ptr<OwnedCgroup>> OwnedCgroup::Create(const fs::path& parent,
                                                           const std::string& name) {
  if (parent.empty()) return NotFoundError("this host has no v2 control groups");
  const std::string mark = MakeOwnMark();
  if (mark.empty()) return NotFoundError("/proc does not have the start time of this process");
  RemoveAbandoned(parent);
  const fs::path path = parent / (std::string(kGroupPrefix) + name);
  if (::mkdir(path.c_str(), 0755) != 0) return ErrnoError(errno, path.string());
  UniqueFd folder = OpenGroup(path);
  Status status;
  if (!folder.valid() || ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0)
    status = ErrnoError(errno, path.string());
  if (status.ok()) status = LeaveMark(folder.get(), MarkLocation::kAttribute, mark);
  if (!status.ok()) {
    ::rmdir(path.c_str());
    return status;
  }
  return std::unique_ptr<OwnedCgroup>(new OwnedCgroup(path, std::move(folder)));
}

void OwnedCgroup::RemoveAbandoned(const fs::path& parent, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end;
       entry.increment(error)) {
    const UniqueFd folder = OpenGroup(entry->path());
    // Several processes may remove a group at once, and each continues if another stops midway.
    if (!folder.valid() || !LockAbandoned(folder.get(), MarkLocation::kAttribute, LOCK_SH))
      continue;
    KillGroup(folder);
    AwaitEmpty(folder, deadline);
    ::rmdir(entry->path().c_str());
  }
}

OwnedCgroup::~OwnedCgroup() {
  ::rmdir(path_.c_str());
  RemoveAbandoned(path_.parent_path());  // processes killed in Create have ended by now
}

void OwnedCgroup::KillAll() const { KillGroup(folder_); }

}  // namespace ds
