#pragma once

// StopLadder: how the ranks of one generation are ended, step by step: they are told to, killed
// when their grace is over, and given up where they do not end though they were killed.
//
// Pure: times are given. Threads: one at a time.

#include <chrono>
#include <optional>

#include "proto/dsrun.pb.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

class StopLadder {
 public:
  using Time = std::chrono::nanoseconds;  // of a monotonic clock

  // Killed processes end well within this time, unless they cannot.
  static constexpr std::chrono::seconds kGiveUpAfter{5};
  // For a stop without a grace, whose user waits (cli/session/job_session.cc).
  static constexpr std::chrono::seconds kGiveUpSoonAfter{2};

  enum class Step { kNothing, kTerminate, kKill, kGiveUp };

  // Returns kTerminate for the first stop, whose cause counts. While it is under way only a shorter
  // grace matters.
  Step Stop(Time grace, v1::StopCause cause, Time now);
  // All that runs was killed: what has not ended in a while is given up.
  void AwaitEnd(Time now);
  // Nothing runs any more.
  void End();

  // To be asked for when it has come; none: time changes nothing.
  std::optional<Time> next() const;
  // Returns kKill or kGiveUp when its time has come, each once.
  Step OnTime(Time now);

  // True while a stop is under way whose grace is not over.
  bool in_grace() const { return kill_at_.has_value(); }
  v1::StopCause cause() const { return cause_; }

 private:
  v1::StopCause cause_ = v1::STOP_NONE;
  std::chrono::seconds give_up_after_ = kGiveUpAfter;
  std::optional<Time> kill_at_;
  std::optional<Time> give_up_at_;
};

}  // namespace ds::daemon
