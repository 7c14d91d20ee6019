#pragma once

// Clock: the time by which code here decides, so that decisions are tested by moving a ManualClock
// instead of by waiting. What only waits, until a deadline, takes std::chrono::steady_clock for it.
//
// Threads: System() and ManualClock are safe to share.

#include <atomic>
#include <chrono>
#include <cstdint>

namespace ds {

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic time; its zero means nothing.
  virtual std::chrono::nanoseconds Now() const = 0;
  // Nanoseconds since 1970-01-01 UTC.
  virtual std::int64_t UnixNanos() const = 0;

  // The machine's clock. Lives for ever.
  static const Clock& System();
};

class ManualClock : public Clock {
 public:
  std::chrono::nanoseconds Now() const override { return std::chrono::nanoseconds(nanos_.load()); }
  std::int64_t UnixNanos() const override { return nanos_.load(); }
  void Advance(std::chrono::nanoseconds by) { nanos_ += by.count(); }

 private:
  std::atomic<std::int64_t> nanos_{0};
};

}  // namespace ds
