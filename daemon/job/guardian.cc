#include "daemon/job/guardian.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>

#include "daemon/host/orphans.h"
#include "runtime/process/cgroups.h"
#include "runtime/process/owned_cgroup.h"
#include "runtime/process/private_folder.h"

namespace ds::daemon {
namespace {

// What SIGKILL has not ended by then is left to itself.
constexpr std::chrono::seconds kPatience{5};

sigset_t MakeSet(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

// What dsrund holds must be seen to end when dsrund does.
void LeaveDescriptors() {
  ::closefrom(0);
  ::open("/dev/null", O_RDWR);  // as standard input
  ::dup2(STDIN_FILENO, STDOUT_FILENO);
  ::dup2(STDIN_FILENO, STDERR_FILENO);
}

// Returns its status.
int AwaitDaemon(pid_t daemon, const sigset_t& signals) {
  int status = 0;
  while (::waitpid(daemon, &status, WNOHANG) == 0) {
    const int signal = ::sigwaitinfo(&signals, nullptr);
    if (signal > 0 && signal != SIGCHLD) ::kill(daemon, signal);
  }
  return status;
}

void AwaitEndOfChild(std::chrono::steady_clock::duration longest) {
  const sigset_t signals = MakeSet({SIGCHLD});
  const auto nanos = std::chrono::duration_cast<std::chrono::nanoseconds>(longest).count();
  const timespec time{nanos / 1'000'000'000, nanos % 1'000'000'000};
  ::sigtimedwait(&signals, nullptr, &time);
}

void EndWhatIsLeft() {
  const std::filesystem::path groups = FindOwnCgroups().unified;
  if (!groups.empty()) OwnedCgroup::RemoveAbandoned(groups);  // kills all that is in it at once
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!EndOrphans(Orphans::kKill)) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= left.zero()) break;
    AwaitEndOfChild(left);
  }
  if (!groups.empty()) OwnedCgroup::RemoveAbandoned(groups);  // it is empty now
  PrivateFolder::RemoveAbandoned();
}

[[noreturn]] void EndLikeDaemon(int status) {
  if (WIFSIGNALED(status)) {
    ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);  // the core is dsrund's
    std::signal(WTERMSIG(status), SIG_DFL);
    const sigset_t signals = MakeSet({WTERMSIG(status)});
    ::sigprocmask(SIG_UNBLOCK, &signals, nullptr);
    ::kill(::getpid(), WTERMSIG(status));
  }
  std::_Exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

[[noreturn]] void Guard(pid_t daemon) {
  const sigset_t signals = MakeSet({SIGCHLD, SIGTERM, SIGINT, SIGHUP});
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  ::prctl(PR_SET_NAME, "dsrun-guard", 0, 0, 0);
  LeaveDescriptors();
  const int status = AwaitDaemon(daemon, signals);
  const bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!well) EndWhatIsLeft();
  EndLikeDaemon(status);
}

}  // namespace

Status ContinueUnderGuardian() {
  std::signal(SIGCHLD, SIG_DFL);  // ignored, it would take the statuses of children with it
  DS_RETURN_IF_ERROR(AdoptOrphans());
  const pid_t guardian = ::getpid();
  const pid_t daemon = ::fork();
  if (daemon < 0) return ErrnoError(errno, "fork");
  if (daemon > 0) Guard(daemon);
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) != 0) return ErrnoError(errno, "death signal");
  // Killed before that, it would end without a sign.
  if (::getppid() != guardian) return CancelledError("the guardian is gone");
  return OkStatus();
}

}  // namespace ds::daemon
