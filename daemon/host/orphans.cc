#include "daemon/host/orphans.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "runtime/base/process_stat.h"
#include "runtime/base/unique_fd.h"

namespace ds::daemon {
namespace {

namespace fs = std::filesystem;

// Lists the children of every thread of `process`, a pid or "self".
std::vector<pid_t> ListChildren(const std::string& process) {
  std::vector<pid_t> pids;
  std::error_code error;
  for (fs::directory_iterator task("/proc/" + process + "/task", error), end; !error && task != end;
       task.increment(error)) {
    std::ifstream children(task->path() / "children");
    for (pid_t pid = 0; children >> pid;) pids.push_back(pid);
  }
  return pids;
}

// Returns 0 if there is no such process.
pid_t ReadParent(pid_t pid) {
  const std::optional<ProcessStat> stat = ReadProcessStat(pid);
  return stat.has_value() ? stat->parent : 0;
}

// Signals the child only if `parent` is still its parent. Its number may belong to another process
// by now.
void TerminateChild(pid_t pid, pid_t parent) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process.valid() || ReadParent(pid) != parent) return;
  for (const int signal : {SIGTERM, SIGCONT}) {
    ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0);
  }
}

// Signals all strays below `process`, but not `process` itself.
void TerminateStraysBelow(pid_t process, const std::vector<pid_t>& ranks) {
  const auto is_rank = [&](pid_t pid) {
    return std::find(ranks.begin(), ranks.end(), pid) != ranks.end();
  };
  std::vector<pid_t> parents = {process};
  while (!parents.empty()) {
    const pid_t parent = parents.back();
    parents.pop_back();
    for (const pid_t child : ListChildren(std::to_string(parent))) {
      if (is_rank(child)) continue;
      parents.push_back(child);
      if (!is_rank(::getpgid(child))) TerminateChild(child, parent);
    }
  }
}

}  // namespace

Status AdoptOrphans() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) return ErrnoError(errno, "subreaper");
  return OkStatus();
}

void ReapOrphans(const std::function<bool(pid_t)>& is_awaited) {
  while (true) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    if (is_awaited(info.si_pid)) return;
    ::waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

void TerminateStrays(const std::vector<pid_t>& ranks) {
  for (const pid_t rank : ranks) TerminateStraysBelow(rank, ranks);
  // This process is last, because it has adopted the processes that the ranks orphaned meanwhile.
  TerminateStraysBelow(::getpid(), ranks);
}

std::vector<pid_t> ListOwnChildren() { return ListChildren("self"); }

bool EndOrphans(Orphans how) {
  // Reaps first, because there are usually no children, and listing them is slow.
  bool killed = false;
  while (true) {
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
    if (pid < 0) return true;  // ECHILD
    if (pid > 0) {
      killed = false;  // its orphans have been adopted by now
    } else if (how == Orphans::kAwait || killed) {
      return false;
    } else {
      for (const pid_t child : ListOwnChildren()) ::kill(child, SIGKILL);
      killed = true;
    }
  }
}

}  // namespace ds::daemon
