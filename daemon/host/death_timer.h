#pragma once

// DeathTimer makes the kernel kill this process at a given time. That works even if the process
// hangs or has been stopped (SIGSTOP), alone or together with all other processes of the job. Ranks
// die with the process that started them; the guardian ends the processes that ranks have started.
//
// Times are those of BootTime() (runtime/process/boot_time.h), so the suspension of a machine does
// not extend them.
//
// Not thread-safe.

#include <chrono>
#include <ctime>

#include "runtime/base/status.h"

namespace ds::daemon {

class DeathTimer {
 public:
  // Creates a timer without a deadline. Destroying the object removes the deadline.
  static StatusOr<DeathTimer> Create();
  DeathTimer(DeathTimer&& other) noexcept;
  DeathTimer& operator=(DeathTimer&&) = delete;
  ~DeathTimer();

  // Replaces the previous deadline. A time in the past means now.
  void SetTo(std::chrono::nanoseconds when);

 private:
  explicit DeathTimer(timer_t timer) : timer_(timer), valid_(true) {}

  timer_t timer_;
  bool valid_;
};

}  // namespace ds::daemon
