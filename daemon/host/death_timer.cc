#include "daemon/host/death_timer.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

namespace ds::daemon {

StatusOr<DeathTimer> DeathTimer::Create() {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer{};
  if (::timer_create(CLOCK_BOOTTIME, &event, &timer) != 0) return ErrnoError(errno, "timer_create");
  return DeathTimer(timer);
}

DeathTimer::DeathTimer(DeathTimer&& other) noexcept
    : timer_(other.timer_), valid_(std::exchange(other.valid_, false)) {}

DeathTimer::~DeathTimer() {
  if (valid_) ::timer_delete(timer_);
}

void DeathTimer::SetTo(std::chrono::nanoseconds when) {
  const auto nanos = std::max<std::int64_t>(when.count(), 1);  // 0 would disarm it
  itimerspec time{};
  time.it_value.tv_sec = nanos / 1'000'000'000;
  time.it_value.tv_nsec = nanos % 1'000'000'000;
  ::timer_settime(timer_, TIMER_ABSTIME, &time, nullptr);  // cannot fail with these arguments
}

}  // namespace ds::daemon
