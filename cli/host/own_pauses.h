#pragma once

// OwnPauses: the times in which this process did not run although it should have: it was stopped
// (Ctrl-Z), its machine slept, or it got no processor. Nobody renewed a lease then, and that no
// host was heard is no host's fault.
//
// Told by a thread whose waits are short: a wait that lasts is a pause, also while it still goes
// on.
//
// Pure: times are given. Threads: one at a time.

#include <algorithm>
#include <chrono>

namespace ds::cli {

struct OwnPause {
  std::chrono::nanoseconds length{};
  std::chrono::nanoseconds asleep{};  // of this the machine itself was suspended
};

class OwnPauses {
 public:
  using Time = std::chrono::nanoseconds;
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
    // A shorter one later does not matter while this one is remembered.
    if (pause.length >= last_.length || now.boot - ended_ > kRemembered * last_.length) {
      last_ = pause;
      ended_ = now.boot;
    }
    return pause;
  }
  // The longest that has not ended longer than `within` ago; its length is 0 when there is none.
  OwnPause FindLongest(Time now, Time within) const {
    const OwnPause past = now - ended_ <= within ? last_ : OwnPause();
    const Time waited = waiting_ ? now - begun_.boot : Time(0);
    return waited > past.length ? OwnPause{waited, Time(0)} : past;
  }

 private:
  static constexpr int kRemembered = 4;

  Clocks begun_{};
  bool waiting_ = false;
  OwnPause last_;
  Time ended_{};
};

}  // namespace ds::cli
