#pragma once

// EventClock: simulated time. It stands still while something happens, and jumps to what happens
// next. What is planned for one moment happens in the order of planning, so that a seed always
// tells the same story.
//
// Threads: one.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

namespace ds::sim {

using Time = std::chrono::nanoseconds;

inline Time Seconds(double count) {
  return std::chrono::duration_cast<Time>(std::chrono::duration<double>(count));
}

class EventClock {
 public:
  Time now() const { return now_; }
  void At(Time when, std::function<void()> what) {
    plans_.emplace(std::pair(std::max(when, now_), next_++), std::move(what));
  }
  void After(Time delay, std::function<void()> what) { At(now_ + delay, std::move(what)); }

  // Lets everything happen until `end`, or until `done` says so.
  void RunUntil(Time end, const std::function<bool()>& done) {
    while (!done() && !plans_.empty() && plans_.begin()->first.first <= end) {
      auto plan = plans_.extract(plans_.begin());
      now_ = plan.key().first;
      plan.mapped()();
    }
    if (!done()) now_ = std::max(now_, end);
  }

 private:
  Time now_{0};
  std::uint64_t next_ = 0;
  std::map<std::pair<Time, std::uint64_t>, std::function<void()>> plans_;
};

}  // namespace ds::sim
