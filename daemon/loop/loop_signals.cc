#include "daemon/loop/loop_signals.h"

#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>

namespace ds::daemon {
namespace {

sigset_t LoopSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  return set;
}

}  // namespace

void BlockLoopSignals() {
  const sigset_t set = LoopSignals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

StatusOr<UniqueFd> OpenLoopSignals() {
  const sigset_t set = LoopSignals();
  UniqueFd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.valid()) return ErrnoError(errno, "signalfd");
  return signals;
}

}  // namespace ds::daemon
