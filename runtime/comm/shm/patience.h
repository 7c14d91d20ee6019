#pragma once

// Patience: how long a rank has waited for another, in time in which it could have seen it come.
// While a signal has stopped a process (a scheduler suspends whole jobs so), or its machine sleeps,
// it sees nothing: between two looks no more time counts than they are to be apart.
//
// Pure: time comes from outside. Threads: one.

#include <algorithm>
#include <chrono>

namespace ds::comm {

class Patience {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // It lasts for `most` from `now` on; who waits looks every `look`, or more often.
  Patience(std::chrono::nanoseconds most, std::chrono::nanoseconds look, Time now)
      : most_(most), left_(most), look_(look), last_(now) {}

  // Counts the time since the last look.
  void Look(Time now) {
    left_ -= std::min<std::chrono::nanoseconds>(now - last_, look_);
    last_ = now;
  }
  bool is_over() const { return left_.count() <= 0; }
  bool is_half_over() const { return left_ <= most_ / 2; }
  // The time until the next look, which is not later than when it is half over, or over.
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
