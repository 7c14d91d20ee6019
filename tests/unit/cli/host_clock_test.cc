#include "cli/host/host_clock.h"

#include <gtest/gtest.h>

#include <chrono>

namespace ds::cli {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""h;

// The host's clock is an hour ahead.
constexpr std::chrono::nanoseconds kAhead = 1h;

TEST(HostClockTest, KnowsNothingWithoutAnAnswer) {
  EXPECT_FALSE(HostClock().Convert(5s, 5s).has_value());
}

TEST(HostClockTest, TheErrorIsTheRoundTrip) {
  HostClock clock;
  clock.OnAnswer(100s, kAhead + 100s + 4ms, 100s + 10ms);
  const auto when = clock.Convert(kAhead + 100s, 100s + 10ms);
  ASSERT_TRUE(when.has_value());
  EXPECT_EQ(when->earliest, 100s - 4ms);
  EXPECT_EQ(when->latest, 100s + 6ms);
  EXPECT_EQ(when->middle(), 100s + 1ms);
}

TEST(HostClockTest, AnotherProcessGoesOnWithWhatIsKnown) {
  HostClock clock;
  clock.OnAnswer(100s, kAhead + 100s + 4ms, 100s + 10ms);
  HostClock next;
  next.Restore(*clock.offset());
  EXPECT_EQ(next.Convert(kAhead + 100s, 104s)->earliest,
            clock.Convert(kAhead + 100s, 104s)->earliest);
  next.Restore({});
  EXPECT_EQ(next.Convert(kAhead + 100s, 104s)->earliest,
            clock.Convert(kAhead + 100s, 104s)->earliest)
      << "it has one";
}

TEST(HostClockTest, AShortRoundTripIsKeptUntilTheDriftMakesItWorse) {
  HostClock clock;
  clock.OnAnswer(100s, kAhead + 100s + 1ms, 100s + 2ms);
  clock.OnAnswer(102s, kAhead + 102s + 90ms, 102s + 100ms);
  const auto kept = clock.Convert(kAhead + 102s, 102s + 2ms);
  EXPECT_EQ(kept->latest - kept->earliest, 4ms) << "2 ms, and 500 ppm of 2 s to both sides";
  clock.OnAnswer(300s, kAhead + 300s + 50ms, 300s + 100ms);
  const auto fresh = clock.Convert(kAhead + 300s, 300s + 100ms);
  EXPECT_EQ(fresh->latest - fresh->earliest, 100ms);
}

TEST(HostClockTest, AClockThatHasJumpedIsReadAnew) {
  HostClock clock;
  clock.OnAnswer(100s, kAhead + 100s, 100s + 1ms);
  clock.OnAnswer(110s, 110s + 50ms, 110s + 100ms);
  EXPECT_EQ(clock.Convert(110s, 110s + 100ms)->middle(), 110s);
}

}  // namespace
}  // namespace ds::cli
