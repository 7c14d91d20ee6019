#include "daemon/ranks/rank_monitor.h"

#include <gtest/gtest.h>

namespace ds::daemon {
namespace {

ProcessStat Stat(char state, std::uint64_t ticks) {
  return {.state = state, .processor_ticks = ticks};
}

TEST(StandstillTest, ARankThatStaysStoppedIsStalledFromTheSecondCheckOn) {
  Standstill standstill;
  EXPECT_FALSE(standstill.Look(Stat('S', 7)));
  EXPECT_TRUE(standstill.Look(Stat('T', 7)));
  EXPECT_TRUE(standstill.Look(Stat('T', 7)));
  EXPECT_FALSE(standstill.Look(Stat('R', 7)));
}

// As under cpulimit: it is stopped whenever somebody looks.
TEST(StandstillTest, OneThatHasRunBetweenTwoLooksDoesNot) {
  Standstill standstill;
  for (std::uint64_t ticks = 0; ticks < 5; ++ticks) {
    EXPECT_FALSE(standstill.Look(Stat('T', ticks))) << ticks;
  }
}

TEST(StandstillTest, NothingIsKnownOfOneThatCannotBeRead) {
  Standstill standstill;
  EXPECT_FALSE(standstill.Look(Stat('T', 3)));
  EXPECT_FALSE(standstill.Look(std::nullopt));
  EXPECT_TRUE(standstill.Look(Stat('T', 3)));
}

}  // namespace
}  // namespace ds::daemon
