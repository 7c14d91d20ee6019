#pragma once

// WaitTimeout: a timeout for waiting for another rank. It counts only time in which the rank could
// have observed the other's arrival. While a signal has stopped the process (schedulers suspend
// jobs this way), or its machine sleeps, it observes nothing. Between two looks at most the
// interval between looks is therefore counted.
//
// Pure: the caller passes the time. Not thread-safe.

#include <algorithm>
#include <chrono>

namespace ds::comm {

class WaitTimeout {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // The timeout is `most`, starting at `now`. The waiting rank calls Look at least every `look`.
  WaitTimeout(std::chrono::nanoseconds most, std::chrono::nanoseconds look, Time now)
      : most_(most), left_(most), look_(look), last_(now) {}

  // Counts the time since the last look, at most `look`.
  void Look(Time now) {
    left_ -= std::min<std::chrono::nanoseconds>(now - last_, look_);
    last_ = now;
  }
  bool is_over() const { return left_.count() <= 0; }
  bool is_half_over() const { return left_ <= most_ / 2; }
  // Returns the time until the next look. The next look is not later than half of the timeout, or
  // its end.
  std::chrono::nanoseconds until_look() const {
    const std::chrono::nanoseconds next = is_half_over() ? left_ : left_ - most_ / 2;
    return std::clamp<std::chrono::nanoseconds>(next, std::chrono::nanoseconds(0), look_);
  }

 private:
  std::chrono::nanoseconds most_;
  std::chrono::nanoseconds left_;
  std::chrono::nanoseconds look_;
  Time last_;
};

}  // namespace ds::comm
