#pragma once

// PeerWatch: tells whether another rank's process has ended.
//
// It holds a pidfd per peer from the first question on, so a process id that the kernel gives to
// somebody else later is never mistaken for the peer.
// Threads: one thread at a time.

#include <sys/types.h>

#include <vector>

#include "runtime/base/unique_fd.h"

namespace ds::comm {

class PeerWatch {
 public:
  explicit PeerWatch(int size) : pidfds_(static_cast<std::size_t>(size)) {}

  // Whether rank `rank`, which runs as process `pid`, has ended. False where the kernel cannot
  // tell.
  bool HasEnded(int rank, pid_t pid);

 private:
  std::vector<UniqueFd> pidfds_;
};

}  // namespace ds::comm
