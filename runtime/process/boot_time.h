#pragma once

// The time since this machine's boot, by a clock that nobody sets and that goes on while the
// machine is suspended: leases are counted by it.

#include <chrono>
#include <ctime>

namespace ds {

inline std::chrono::nanoseconds BootTime() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace ds
