#pragma once

// PhaseTimers: how long the phases of a step take on this rank, as wall_clock_breakdown asks for.
// The phases, their names and their lines are those of DeepSpeed's timers:
//
//     time (ms) | fwd_microstep: 3.10 | bwd_microstep: 6.42 | bwd_inner_microstep: 6.10 |
//       bwd_allreduce_microstep: 0.31 | step_microstep: 0.00
//     time (ms) | fwd: 6.15 | bwd: 12.90 | bwd_inner: 12.11 | bwd_allreduce: 0.78 | step: 1.52
//
// each in one line. The first is printed when the next micro-batch begins, or the step has ended,
// the second at the end of the step. A GPU is waited for where a phase begins and ends.
//
// Threads: one at a time. What is borrowed outlives this.

#include <c10/core/Device.h>

#include <array>
#include <chrono>
#include <optional>
#include <string_view>

#include "runtime/base/clock.h"

namespace ds::engine {

// The times belong to a micro-batch, or to all those of a step. `backward` is the whole of it: what
// computes the gradients, and sends those that are sharded as they come (`backward_inner`), and
// what is left to send behind that (`backward_allreduce`). `step` is the update with all that
// belongs to it.
struct PhaseTimes {
  std::chrono::nanoseconds forward{0}, backward{0}, backward_inner{0}, backward_allreduce{0},
      step{0};
};

struct PhaseTimerOptions {
  bool enabled = false;               // wall_clock_breakdown; else nothing below happens
  bool prints = false;                // the lines, to the standard output
  bool prints_micro_batches = false;  // the first of them; not where those of stages interleave
  c10::Device device = c10::kCPU;
  const Clock* clock = &Clock::System();
};

class PhaseTimers {
 public:
  using Phase = std::chrono::nanoseconds PhaseTimes::*;

  PhaseTimers() = default;
  explicit PhaseTimers(const PhaseTimerOptions& options) : options_(options) {}

  // A phase that is started and does not come to its end counts for nothing.
  void Start(Phase phase);
  void Stop(Phase phase);

  void EndMicroBatch();
  void EndStep();

  // Those of the latest step; none before the first, and without wall_clock_breakdown.
  const std::optional<PhaseTimes>& latest() const { return latest_; }

 private:
  std::chrono::nanoseconds ReadClock() const;
  void Print(const std::array<std::string_view, 5>& names, const PhaseTimes& times) const;

  PhaseTimerOptions options_;
  PhaseTimes begins_;  // by the clock
  std::optional<PhaseTimes> micro_batch_;
  PhaseTimes step_;
  std::optional<PhaseTimes> latest_;
};

}  // namespace ds::engine
