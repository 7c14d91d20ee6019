#include "daemon/ranks/rank_cgroup.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

namespace ds::daemon {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "dsrun-";

UniqueFd OpenFolder(const fs::path& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

bool Lock(const UniqueFd& folder) { return ::flock(folder.get(), LOCK_EX | LOCK_NB) == 0; }

void KillIn(const fs::path& path, const UniqueFd& folder) {
  const UniqueFd kill(::openat(folder.get(), "cgroup.kill", O_WRONLY | O_CLOEXEC));
  if (kill.valid() && ::write(kill.get(), "1", 1) == 1) return;
  // Kernels before 5.14. What forks meanwhile is found when its parent's end is seen.
  std::ifstream processes(path / "cgroup.procs");
  for (pid_t pid = 0; processes >> pid;) ::kill(pid, SIGKILL);
}

// Ends and removes the groups of daemons that are gone. One whose processes are still ending stays
// for the next time.
void RemoveStale(const fs::path& parent) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, error)) {
    if (!entry.path().filename().string().starts_with(kPrefix)) continue;
    const UniqueFd folder = OpenFolder(entry.path());
    if (!folder.valid() || !Lock(folder)) continue;
    KillIn(entry.path(), folder);
    ::rmdir(entry.path().c_str());
  }
}

}  // namespace

StatusOr<std::unique_ptr<RankCgroup>> RankCgroup::Create(const fs::path& parent,
                                                         const std::string& name) {
  if (parent.empty()) return NotFoundError("this host has no v2 control groups");
  RemoveStale(parent);
  const fs::path path = parent / (std::string(kPrefix) + name);
  if (::mkdir(path.c_str(), 0755) != 0) return ErrnoError(errno, path.string());
  UniqueFd folder = OpenFolder(path);
  if (!folder.valid() || !Lock(folder)) {
    const Status status = ErrnoError(errno, path.string());
    ::rmdir(path.c_str());
    return status;
  }
  return std::unique_ptr<RankCgroup>(new RankCgroup(path, std::move(folder)));
}

RankCgroup::~RankCgroup() { ::rmdir(path_.c_str()); }

void RankCgroup::KillAll() const { KillIn(path_, folder_); }

}  // namespace ds::daemon
