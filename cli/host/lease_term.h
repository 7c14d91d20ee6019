#pragma once

// LeaseTerm: from when on a daemon counts its lease, as far as the controller can tell.
//
// An answer to a renewal holds the daemon's time; the next renewal names it, and the daemon counts
// its lease from then on. So what has been answered here is the latest that it may count from.
//
// Pure: times are given. Threads: one at a time.

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace ds::cli {

class LeaseTerm {
 public:
  using Time = std::chrono::nanoseconds;  // by BootTime()

  // The daemon was started, and will be, no later than `now`.
  explicit LeaseTerm(Time now) : from_(now) {}

  // To be named by the next renewal, by the daemon's clock; 0 = none has come.
  std::uint64_t answered() const { return answered_; }
  // The daemon counts its lease from then or from before.
  Time from() const { return from_; }

  // An answer has come, in which the daemon tells its time.
  void OnAnswer(std::uint64_t daemon_nanos, Time now) {
    if (given_up_) return;  // no renewal will name it
    answered_ = std::max(answered_, daemon_nanos);
    from_ = now;
  }
  // Nothing is renewed any more.
  void GiveUp() { given_up_ = true; }

 private:
  std::uint64_t answered_ = 0;
  Time from_;
  bool given_up_ = false;
};

}  // namespace ds::cli
