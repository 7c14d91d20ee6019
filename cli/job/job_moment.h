#pragma once

// Converts what changes about a job while its ranks run to its message and back, for an agent that
// takes over (proto/agent.proto).
//
// Pure.

#include <chrono>
#include <optional>

#include "cli/host/host_clock.h"
#include "cli/job/verdict/verdict.h"
#include "proto/agent.pb.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

// A stop of the ranks of a generation.
struct StopInProgress {
  double grace_seconds = 0;
  std::chrono::nanoseconds end{};  // of the grace, by BootTime()
  bool is_of_user = false;         // the user's signal is its cause
};

v1::StopState MakeStopState(const StopInProgress& stop, const JobOutcome& outcome);
// nullopt: no stop of this generation was in progress.
std::optional<StopInProgress> ReadStop(const v1::JobState& state);
// The failure that is the cause of that stop; OK: it is not known.
JobOutcome ReadStopCause(const v1::JobState& state);

v1::ClockState MakeClockState(int number, const HostClock::Offset& offset);
HostClock::Offset ReadClock(const v1::ClockState& clock);

}  // namespace ds::cli
