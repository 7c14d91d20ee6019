#pragma once

// The times that follow the end of a daemon's lease. The daemon must have ended its ranks by then.
// The controller does not start replacements before (cli/job/fence.h).

#include <algorithm>
#include <chrono>

namespace dsrun::v1 {

// The ranks are told to end and get the job's grace, limited to this time.
inline constexpr std::chrono::seconds kLongestLeaseGrace{5};
// After the grace they are killed. A dsrund that has not ended this long afterwards has been
// stopped or hangs. The kernel then kills it (daemon/host/death_timer.h), and the ranks with it.
inline constexpr std::chrono::seconds kLeaseKillAfter{1};
// The guardian, which cannot be kept stopped, ends the ranks' descendants within this time.
inline constexpr std::chrono::seconds kLeaseCleanUp{1};

inline std::chrono::nanoseconds LeaseGrace(std::chrono::nanoseconds grace) {
  return std::min<std::chrono::nanoseconds>(grace, kLongestLeaseGrace);
}

}  // namespace dsrun::v1
