#pragma once

// Time since the boot of this machine. The clock cannot be set and keeps running while the machine
// is suspended. Leases are measured with it.

#include <chrono>
#include <ctime>

namespace ds {

inline std::chrono::nanoseconds BootTime() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

}  // namespace ds
