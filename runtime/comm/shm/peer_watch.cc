#include "runtime/comm/shm/peer_watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace ds::comm {

bool PeerWatch::HasEnded(int rank, pid_t pid) {
  UniqueFd& pidfd = pidfds_[static_cast<std::size_t>(rank)];
  if (!pidfd.valid()) {
    pidfd.Reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!pidfd.valid()) return errno == ESRCH;
  }
  pollfd ended = {.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return poll(&ended, 1, 0) == 1;
}

}  // namespace ds::comm
