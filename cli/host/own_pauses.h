#pragma once

// OwnPauses records the times in which this process did not run although it should have: it was
// stopped (Ctrl-Z), its machine was suspended, or it got no CPU time. No lease was renewed then,
// and the silence of hosts is not their fault.
//
// A thread with short waits reports them; a long wait is a pause, even before it ends.
//
// Pure: the caller passes the time. Not thread-safe.

#include <chrono>
#include <deque>

namespace ds::cli {

struct OwnPause {
  std::chrono::nanoseconds length{};
  std::chrono::nanoseconds asleep{};  // the part in which the machine was suspended
};

class OwnPauses {
 public:
  using Time = std::chrono::nanoseconds;

  // Forgets pauses that ended longer ago than `memory`.
  explicit OwnPauses(Time memory) : memory_(memory) {}

  struct Clocks {
    Time boot;   // BootTime()
    Time awake;  // a monotonic clock that stops while the machine is suspended
  };

  void BeginWait(const Clocks& now) {
    begun_ = now;
    waiting_ = true;
  }
  // Returns the length of the wait.
  OwnPause EndWait(const Clocks& now) {
    waiting_ = false;
    const Time length = now.boot - begun_.boot;
    const OwnPause pause{length, length - (now.awake - begun_.awake)};
    // Shorter pauses before this one can no longer be the longest.
    while (!past_.empty() && past_.back().pause.length <= length) past_.pop_back();
    past_.push_back({pause, now.boot});
    while (now.boot - past_.front().ended > memory_) past_.pop_front();
    return pause;
  }
  // Returns the longest remembered pause; its length is 0 if there is none.
  OwnPause FindLongest(Time now) const {
    OwnPause longest{waiting_ ? now - begun_.boot : Time(0), Time(0)};
    for (const Past& each : past_) {
      if (now - each.ended <= memory_ && each.pause.length >= longest.length) longest = each.pause;
    }
    return longest;
  }

 private:
  struct Past {
    OwnPause pause;
    Time ended;
  };

  const Time memory_;
  Clocks begun_{};
  bool waiting_ = false;
  std::deque<Past> past_;  // each shorter than the one before
};

}  // namespace ds::cli
