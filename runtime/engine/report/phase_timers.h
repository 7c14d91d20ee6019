#pragma once

// PhaseTimers measures how long the phases of a step take on this rank: forward, backward, update
// (wall_clock_breakdown). The phases, their names and the printed lines are DeepSpeed's:
//
//     time (ms) | fwd_microstep: 3.10 | bwd_microstep: 6.42 | bwd_inner_microstep: 6.10 |
//       bwd_allreduce_microstep: 0.31 | step_microstep: 0.00
//     time (ms) | fwd: 6.15 | bwd: 12.90 | bwd_inner: 12.11 | bwd_allreduce: 0.78 | step: 1.52
//
// each printed as one line. The first covers a micro-batch. It is printed when the next one begins
// or the step ends, because the update counts in the last micro-batch. The second covers the step,
// and is printed at its end. A GPU is synchronized where a phase begins and ends, so that a phase
// includes its kernels.
//
// Not thread-safe. The clock must outlive this object.

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
  bool prints_micro_batches = false;  // also a line for each; false in a pipeline
  c10::Device device = c10::kCPU;
  const Clock* clock = &Clock::System();
};

class PhaseTimers {
 public:
  using Phase = std::chrono::nanoseconds PhaseTimes::*;

  PhaseTimers() = default;
  explicit PhaseTimers(const PhaseTimerOptions& options) : options_(options) {}

  // Measure a phase from Start to Stop; `backward` includes its two parts. A phase without Stop,
  // because of an error, is not counted.
  void Start(Phase phase);
  void Stop(Phase phase);

  // Ends the micro-batch in progress, if there is one. Call it when the next one begins.
  void EndMicroBatch();
  // Ends the last micro-batch and the step.
  void EndStep();

  // The times of the latest step; nullopt before the first, and without wall_clock_breakdown.
  const std::optional<PhaseTimes>& latest() const { return latest_; }

 private:
  std::chrono::nanoseconds ReadClock() const;
  void Print(const std::array<std::string_view, 5>& names, const PhaseTimes& times) const;

  PhaseTimerOptions options_;
  PhaseTimes begins_;                      // the clock's time at the latest Start of each phase
  std::optional<PhaseTimes> micro_batch_;  // in progress; nullopt: no phase has ended yet
  PhaseTimes step_;                        // in progress: its finished micro-batches
  std::optional<PhaseTimes> latest_;
};

}  // namespace ds::engine
