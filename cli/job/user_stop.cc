#include "cli/job/user_stop.h"

#include <utility>

namespace ds::cli {

std::string_view StopNotice(StopStep step) {
  switch (step) {
    case StopStep::kCancelStart:
      return "stopping the job; no rank runs";
    case StopStep::kStopRanks:
      return "stopping every rank; once more kills them at once";
    case StopStep::kKeepGrace:
      return "every rank is being stopped already; once more kills them at once";
    case StopStep::kKillRanks:
      return "killing every rank";
    case StopStep::kNothing:
    case StopStep::kKillDaemons:
      return "";
  }
  return "";
}

StopStep UserStop::OnSignal(int signal) {
  const std::lock_guard lock(mutex_);
  const StopStep step = Decide();
  ++count_;
  if (signal_ == 0) {
    signal_ = signal;
    is_to_blame_ = phase_ != JobPhase::kStopping && phase_ != JobPhase::kEnded;
  }
  kills_ranks_ = kills_ranks_ || step == StopStep::kKillRanks;
  kills_daemons_ = kills_daemons_ || step == StopStep::kKillDaemons;
  return step;
}

StopStep UserStop::Decide() {
  if (told_) return StopStep::kKillDaemons;
  const bool is_first = signal_ == 0;
  switch (phase_) {
    case JobPhase::kPreparing:
      return is_first ? StopStep::kCancelStart : StopStep::kNothing;
    case JobPhase::kLaunching:
    case JobPhase::kRunning:
      if (is_first) return StopStep::kStopRanks;
      break;
    case JobPhase::kStopping:
      if (is_first) return StopStep::kKeepGrace;
      break;
    case JobPhase::kEnded:
      return StopStep::kNothing;
  }
  return kills_ranks_ ? StopStep::kNothing : StopStep::kKillRanks;
}

void UserStop::Enter(JobPhase phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  // He was told of a wait before a restart, which is over.
  if (signal_ == 0) told_ = false;
}

void UserStop::OnTold() {
  const std::lock_guard lock(mutex_);
  told_ = true;
}

Patience UserStop::OnTimeUp(bool goes_on) {
  const std::lock_guard lock(mutex_);
  const bool asked_twice = phase_ == JobPhase::kEnded ? count_ >= 2 : kills_ranks_;
  if (!kills_daemons_) {
    // A slow disk is not one that hangs; after a second signal it leaves no time for the verdict.
    if (!asked_twice && goes_on) return Patience::kWait;
    if (asked_twice && !std::exchange(has_last_chance_, true)) return Patience::kLastChance;
  }
  kills_daemons_ = true;
  return Patience::kGiveUp;
}

bool UserStop::BeginLastChance() {
  const std::lock_guard lock(mutex_);
  return !std::exchange(has_last_chance_, true);
}

int UserStop::signal() const {
  const std::lock_guard lock(mutex_);
  return signal_;
}

bool UserStop::is_to_blame() const {
  const std::lock_guard lock(mutex_);
  return is_to_blame_;
}

bool UserStop::ended() const {
  const std::lock_guard lock(mutex_);
  return phase_ == JobPhase::kEnded;
}

bool UserStop::kills_ranks() const {
  const std::lock_guard lock(mutex_);
  return kills_ranks_;
}

bool UserStop::ends_at_once() const {
  const std::lock_guard lock(mutex_);
  return count_ >= 2 || kills_daemons_;
}

bool UserStop::kills_daemons() const {
  const std::lock_guard lock(mutex_);
  return kills_daemons_;
}

}  // namespace ds::cli
