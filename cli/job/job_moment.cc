#include "cli/job/job_moment.h"

#include "cli/job/verdict/verdict_message.h"

namespace ds::cli {
namespace {

using std::chrono::nanoseconds;

bool HasStop(const v1::JobState& state) {
  return state.moment().generation() == state.generation() && state.moment().has_stop();
}

}  // namespace

v1::StopState MakeStopState(const StopInProgress& stop, const JobOutcome& outcome) {
  v1::StopState state;
  state.set_grace_seconds(stop.grace_seconds);
  state.set_end_nanos(stop.end.count());
  state.set_is_of_user(stop.is_of_user);
  if (!outcome.ok()) *state.mutable_verdict() = MakeVerdictMessage(outcome.failure());
  return state;
}

std::optional<StopInProgress> ReadStop(const v1::JobState& state) {
  if (!HasStop(state)) return std::nullopt;
  const v1::StopState& stop = state.moment().stop();
  return StopInProgress{.grace_seconds = stop.grace_seconds(),
                        .end = nanoseconds(stop.end_nanos()),
                        .is_of_user = stop.is_of_user()};
}

JobOutcome ReadStopCause(const v1::JobState& state) {
  if (!HasStop(state) || !state.moment().stop().has_verdict()) return JobOutcome();
  return ReadVerdictMessage(state.moment().stop().verdict());
}

v1::ClockState MakeClockState(int number, const HostClock::Offset& offset) {
  v1::ClockState clock;
  clock.set_number(number);
  clock.set_lowest_nanos(offset.lowest.count());
  clock.set_highest_nanos(offset.highest.count());
  clock.set_taken_nanos(offset.taken.count());
  return clock;
}

HostClock::Offset ReadClock(const v1::ClockState& clock) {
  return {.lowest = nanoseconds(clock.lowest_nanos()),
          .highest = nanoseconds(clock.highest_nanos()),
          .taken = nanoseconds(clock.taken_nanos())};
}

}  // namespace ds::cli
