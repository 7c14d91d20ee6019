#pragma once

// Standstill: tells a rank that a signal has stopped for good from one that is stopped and let go
// on again and again (by cpulimit, say), and may be found stopped at every look.
//
// Pure. Threads: one.

#include <cstdint>
#include <optional>
#include <utility>

#include "runtime/base/process_stat.h"

namespace ds::daemon {

class Standstill {
 public:
  // Tells whether the process is stopped and has done nothing since the look before.
  bool Look(const std::optional<ProcessStat>& stat) {
    if (!stat.has_value()) return false;
    const std::optional<std::uint64_t> before = std::exchange(ticks_, stat->processor_ticks);
    return stat->state == 'T' && before == ticks_;
  }

 private:
  std::optional<std::uint64_t> ticks_;  // at the look before
};

}  // namespace ds::daemon
