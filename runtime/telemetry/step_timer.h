#pragma once

// StepTimer: the time from the end of one optimizer step to the end of the next, data loading
// included. Not thread-safe. The clock must outlive it.

#include <chrono>

#include "runtime/base/clock.h"

namespace ds::telemetry {

class StepTimer {
 public:
  // Counts from here.
  explicit StepTimer(const Clock& clock = Clock::System()) : clock_(clock), last_(clock.Now()) {}

  // Seconds since the last call, Restart or construction.
  double Lap() {
    const auto now = clock_.Now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return seconds;
  }

  // Leaves out what has happened since the last Lap: a checkpoint is not part of a step.
  void Restart() { last_ = clock_.Now(); }

 private:
  const Clock& clock_;
  std::chrono::nanoseconds last_;
};

}  // namespace ds::telemetry
