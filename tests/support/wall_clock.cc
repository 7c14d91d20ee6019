#include "tests/support/wall_clock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace ds::testing {
namespace {

std::atomic<std::int64_t> ahead{0};              // seconds
std::atomic<std::int64_t> back_at_each_look{0};  // seconds

}  // namespace

void SetWallClockAhead(std::chrono::seconds by) { ahead = by.count(); }

void SetWallClockBackAtEachLook(std::chrono::seconds by) { back_at_each_look = by.count(); }

}  // namespace ds::testing

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  if (result != 0 || clock != CLOCK_REALTIME) return result;
  const std::int64_t back = ds::testing::back_at_each_look;
  time->tv_sec += back == 0 ? ds::testing::ahead.load() : ds::testing::ahead -= back;
  return result;
}
