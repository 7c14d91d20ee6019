#pragma once

// OwnPauses: the times in which this process did not run although it should have: it was stopped
// (Ctrl-Z), its machine slept, or it got no processor. Nobody renewed a lease then, and that no
// host was heard is no host's fault.
//
// Told by a thread whose waits are short: a wait that lasts is a pause, also while it still goes
// on.
//
// Pure: times are given. Threads: one at a time.

#include <chrono>
#include <deque>

namespace ds::cli {

struct OwnPause {
  std::chrono::nanoseconds length{};
  std::chrono::nanoseconds asleep{};  // of this the machine itself was suspended
};

class OwnPauses {
 public:
  using Time = std::chrono::nanoseconds;

  // Pauses are forgotten when they ended longer ago than `memory`.
  explicit OwnPauses(Time memory) : memory_(memory) {}

  struct Clocks {
    Time boot;   // BootTime()
    Time awake;  // a monotonic clock that stands still while the machine is suspended
  };

  void BeginWait(const Clocks& now) {
    begun_ = now;
    waiting_ = true;
  }
  // Returns how long the wait was.
  OwnPause EndWait(const Clocks& now) {
    waiting_ = false;
    const Time length = now.boot - begun_.boot;
    const OwnPause pause{length, length - (now.awake - begun_.awake)};
    // Nobody will ask for shorter ones before it any more.
    while (!past_.empty() && past_.back().pause.length <= length) past_.pop_back();
    past_.push_back({pause, now.boot});
    while (now.boot - past_.front().ended > memory_) past_.pop_front();
    return pause;
  }
  // The longest that is remembered; its length is 0 when there is none.
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
