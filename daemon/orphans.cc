#include "daemon/orphans.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace ds::daemon {
namespace {

namespace fs = std::filesystem;

// SIGKILL to every child of this process, whichever thread it is accounted to.
void KillChildren() {
  std::error_code error;
  for (const fs::directory_entry& task : fs::directory_iterator("/proc/self/task", error)) {
    std::ifstream children(task.path() / "children");
    pid_t pid = 0;
    while (children >> pid) ::kill(pid, SIGKILL);
  }
}

}  // namespace

Status AdoptOrphans() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) return ErrnoError(errno, "subreaper");
  return OkStatus();
}

void ReapOrphans(const std::function<bool(pid_t)>& is_rank) {
  while (true) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    if (is_rank(info.si_pid)) return;
    ::waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

bool KillOrphans() {
  while (true) {
    KillChildren();
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
    if (pid < 0) return true;  // ECHILD
    if (pid == 0) return false;
  }
}

}  // namespace ds::daemon
