#pragma once

// These times follow the end of a daemon's lease, and both ends count with them: the daemon, which
// must have ended its ranks by then, and the controller, which starts nothing in their place before
// (cli/job/fence.h).

#include <algorithm>
#include <chrono>

namespace dsrun::v1 {

// The ranks are told to end, and have the grace of the job, but no more than this.
inline constexpr std::chrono::seconds kLongestLeaseGrace{5};
// Then they are killed; a dsrund that has not ended so much later has been stopped or hangs. The
// kernel kills it (daemon/host/death_timer.h), and them with it.
inline constexpr std::chrono::seconds kLeaseKillAfter{1};
// Its guardian, which nobody can keep stopped, ends what they have started within this time.
inline constexpr std::chrono::seconds kLeaseCleanUp{1};

inline std::chrono::nanoseconds LeaseGrace(std::chrono::nanoseconds grace) {
  return std::min<std::chrono::nanoseconds>(grace, kLongestLeaseGrace);
}

}  // namespace dsrun::v1
