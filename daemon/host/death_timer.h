#pragma once

// DeathTimer: a time at which the kernel kills this process, whatever it does then: it may hang, or
// have been stopped (SIGSTOP), even together with all other processes of the job. Ranks die with
// the process that started them, and what they have started is its guardian's to end.
//
// The time is by BootTime() (runtime/process/boot_time.h): a machine that was suspended does not
// wait longer.
//
// Threads: one at a time.

#include <chrono>
#include <ctime>

#include "runtime/base/status.h"

namespace ds::daemon {

class DeathTimer {
 public:
  // No time is set, and none any more when the object has gone.
  static StatusOr<DeathTimer> Create();
  DeathTimer(DeathTimer&& other) noexcept;
  DeathTimer& operator=(DeathTimer&&) = delete;
  ~DeathTimer();

  // In place of the time that was set before. One that has passed means now.
  void SetTo(std::chrono::nanoseconds when);

 private:
  explicit DeathTimer(timer_t timer) : timer_(timer), valid_(true) {}

  timer_t timer_;
  bool valid_;
};

}  // namespace ds::daemon
