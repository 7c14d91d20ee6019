#include "daemon/host/death_timer.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "runtime/process/boot_time.h"

namespace ds::daemon {
namespace {

constexpr int kNoTimer = 1;

// Returns how a process has ended that sets its timer and then does `rest`, for ever: of itself it
// ends only where it has no timer.
template <typename Set, typename Rest>
int RunProcess(const Set& set, const Rest& rest) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    StatusOr<DeathTimer> timer = DeathTimer::Create();
    if (!timer.ok()) ::_exit(kNoTimer);
    set(&*timer);
    for (;;) rest();
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return status;
}

bool WasKilled(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

TEST(DeathTimerTest, ATimeThatHasPassedMeansNow) {
  EXPECT_TRUE(WasKilled(RunProcess([](DeathTimer* timer) { timer->SetTo({}); }, ::pause)));
}

TEST(DeathTimerTest, ItKillsAProcessThatHasBeenStopped) {
  const auto in_a_moment = [](DeathTimer* timer) {
    timer->SetTo(BootTime() + std::chrono::milliseconds(100));
  };
  EXPECT_TRUE(WasKilled(RunProcess(in_a_moment, [] { ::raise(SIGSTOP); })));
}

TEST(DeathTimerTest, ALaterTimeTakesThePlaceOfAnEarlierOne) {
  const auto sooner = [](DeathTimer* timer) {
    timer->SetTo(BootTime() + std::chrono::hours(24));
    timer->SetTo(BootTime());
  };
  EXPECT_TRUE(WasKilled(RunProcess(sooner, ::pause)));
}

}  // namespace
}  // namespace ds::daemon
