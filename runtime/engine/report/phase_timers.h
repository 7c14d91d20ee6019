#pragma once

// PhaseTimers measures how long the phases of a step take on this rank (wall_clock_breakdown). The
// phases, their names and the printed lines are those of DeepSpeed's timers:
//
//     time (ms) | fwd_microstep: 3.10 | bwd_microstep: 6.42 | bwd_inner_microstep: 6.10 |
//       bwd_allreduce_microstep: 0.31 | step_microstep: 0.00
//     time (ms) | fwd: 6.15 | bwd: 12.90 | bwd_inner: 12.11 | bwd_allreduce: 0.78 | step: 1.52
//
// each printed as one line. The first is printed when the next micro-batch begins or the step ends,
// the second at the end of the step. A GPU is synchronized where a phase begins and ends.
//
// Not thread-safe. Referenced objects must outlive this object.

#include <c10/core/Device.h>

#include <array>
#include <chrono>
#include <optional>
#include <string_view>

#include "runtime/base/clock.h"

namespace ds::engine {

// Times of a micro-batch, or of all micro-batches of a step. `backward` is the sum of
// `backward_inner` (computing the gradients and communicating sharded ones as they complete) and
// `backward_allreduce` (communicating the remaining gradients). `step` is the complete update.
struct PhaseTimes {
  std::chrono::nanoseconds forward{0}, backward{0}, backward_inner{0}, backward_allreduce{0},
      step{0};
};

struct PhaseTimerOptions {
  bool enabled = false;               // wall_clock_breakdown; if false, nothing is measured
  bool prints = false;                // to standard output
  bool prints_micro_batches = false;  // also per micro-batch; false if stages interleave them
  c10::Device device = c10::kCPU;
  const Clock* clock = &Clock::System();
};

class PhaseTimers {
 public:
  using Phase = std::chrono::nanoseconds PhaseTimes::*;

  PhaseTimers() = default;
  explicit PhaseTimers(const PhaseTimerOptions& options) : options_(options) {}

  // A phase without Stop is not counted.
  void Start(Phase phase);
  void Stop(Phase phase);

  void EndMicroBatch();
  void EndStep();

  // The times of the latest step; nullopt before the first, and without wall_clock_breakdown.
  const std::optional<PhaseTimes>& latest() const { return latest_; }

 private:
  std::chrono::nanoseconds ReadClock() const;
  void Print(const std::array<std::string_view, 5>& names, const PhaseTimes& times) const;

  PhaseTimerOptions options_;
  PhaseTimes begins_;  // clock times
  std::optional<PhaseTimes> micro_batch_;
  PhaseTimes step_;
  std::optional<PhaseTimes> latest_;
};

}  // namespace ds::engine
