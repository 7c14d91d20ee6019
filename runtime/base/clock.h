#pragma once

// Clock is the time source for decisions, so that tests can advance a ManualClock instead of
// sleeping. Code that only waits until a deadline uses std::chrono::steady_clock directly.
//
// System() and ManualClock are thread-safe.

#include <atomic>
#include <chrono>
#include <cstdint>

namespace ds {

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic time since an unspecified point.
  virtual std::chrono::nanoseconds Now() const = 0;
  // Nanoseconds since 1970-01-01 UTC.
  virtual std::int64_t UnixNanos() const = 0;

  // Returns the machine's clock, which is valid until the process ends.
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
