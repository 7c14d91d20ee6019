#pragma once

// Standstill detects a rank that a signal has stopped permanently. A rank that is stopped and
// continued repeatedly (by cpulimit, for example) may be stopped at every check and is not
// reported.
//
// Pure. Not thread-safe.

#include <cstdint>
#include <optional>
#include <utility>

#include "runtime/base/process_stat.h"

namespace ds::daemon {

class Standstill {
 public:
  // Returns true if the process is stopped and has used no CPU time since the previous call.
  bool Look(const std::optional<ProcessStat>& stat) {
    if (!stat.has_value()) return false;
    const std::optional<std::uint64_t> before = std::exchange(ticks_, stat->processor_ticks);
    return stat->state == 'T' && before == ticks_;
  }

 private:
  std::optional<std::uint64_t> ticks_;  // at the previous call
};

}  // namespace ds::daemon
