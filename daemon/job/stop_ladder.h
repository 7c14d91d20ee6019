#pragma once

// StopLadder decides the steps that end the ranks of one generation: terminate, kill after the
// grace, and give up on killed ranks that do not end.
//
// Pure: times are arguments. Not thread-safe.

#include <chrono>
#include <optional>

#include "proto/dsrun.pb.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

class StopLadder {
 public:
  using Time = std::chrono::nanoseconds;  // of a monotonic clock

  // Killed processes normally end well within this time.
  static constexpr std::chrono::seconds kGiveUpAfter{5};
  // The limit after a stop without a grace, because the user waits (cli/agent/agent.cc).
  static constexpr std::chrono::seconds kGiveUpSoonAfter{2};

  enum class Step { kNothing, kTerminate, kKill, kGiveUp };

  // Returns kTerminate for the first stop, which sets the cause. During that stop, a further one
  // can only shorten the grace.
  Step Stop(Time grace, v1::StopCause cause, Time now);
  // Call when all processes have been killed. OnTime returns kGiveUp for those still running after
  // a while.
  void AwaitEnd(Time now);
  // Call when no process runs any more.
  void End();

  // The time to call OnTime next; none if no step is pending.
  std::optional<Time> next() const;
  // Returns kKill or kGiveUp when it is due, each once.
  Step OnTime(Time now);

  // True during a stop until its grace is over.
  bool in_grace() const { return kill_at_.has_value(); }
  v1::StopCause cause() const { return cause_; }

 private:
  v1::StopCause cause_ = v1::STOP_NONE;
  std::chrono::seconds give_up_after_ = kGiveUpAfter;
  std::optional<Time> kill_at_;
  std::optional<Time> give_up_at_;
};

}  // namespace ds::daemon
