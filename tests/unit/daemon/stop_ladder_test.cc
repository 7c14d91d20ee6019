#include "daemon/job/stop_ladder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

namespace ds::daemon {
namespace {

using std::chrono::seconds;
using Step = StopLadder::Step;
using Time = StopLadder::Time;

TEST(StopLadderTest, AskedThenKilledThenGivenUp) {
  StopLadder ladder;
  EXPECT_FALSE(ladder.next().has_value());
  EXPECT_EQ(ladder.Stop(seconds(15), v1::STOP_RANK_FAILED, seconds(100)), Step::kTerminate);
  EXPECT_TRUE(ladder.in_grace());
  EXPECT_EQ(ladder.next(), Time(seconds(115)));
  EXPECT_EQ(ladder.OnTime(seconds(114)), Step::kNothing);
  EXPECT_EQ(ladder.OnTime(seconds(115)), Step::kKill);
  EXPECT_FALSE(ladder.in_grace());
  EXPECT_EQ(ladder.next(), Time(seconds(115) + StopLadder::kGiveUpAfter));
  EXPECT_EQ(ladder.OnTime(seconds(116)), Step::kNothing) << "once";
  EXPECT_EQ(ladder.OnTime(seconds(120)), Step::kGiveUp);
  EXPECT_FALSE(ladder.next().has_value());
}

TEST(StopLadderTest, OnlyAShorterGraceMattersAndTheFirstCause) {
  StopLadder ladder;
  ladder.Stop(seconds(15), v1::STOP_REQUESTED, seconds(100));
  EXPECT_EQ(ladder.Stop(seconds(60), v1::STOP_LEASE_EXPIRED, seconds(101)), Step::kNothing);
  EXPECT_EQ(ladder.next(), Time(seconds(115)));
  EXPECT_EQ(ladder.Stop(seconds(0), v1::STOP_LEASE_EXPIRED, seconds(102)), Step::kNothing);
  EXPECT_EQ(ladder.OnTime(seconds(102)), Step::kKill);
  EXPECT_EQ(ladder.cause(), v1::STOP_REQUESTED);
}

TEST(StopLadderTest, AStopAfterTheKillChangesNothing) {
  StopLadder ladder;
  ladder.Stop(seconds(0), v1::STOP_REQUESTED, seconds(1));
  ladder.OnTime(seconds(1));
  EXPECT_EQ(ladder.Stop(seconds(60), v1::STOP_REQUESTED, seconds(2)), Step::kNothing);
  EXPECT_FALSE(ladder.in_grace());
}

TEST(StopLadderTest, WithoutAGraceTheStepsComeSooner) {
  StopLadder asked;
  asked.Stop(seconds(15), v1::STOP_REQUESTED, seconds(100));
  asked.Stop(seconds(0), v1::STOP_REQUESTED, seconds(101));
  EXPECT_EQ(asked.OnTime(seconds(101)), Step::kKill);
  EXPECT_EQ(asked.next(), Time(seconds(101) + StopLadder::kGiveUpSoonAfter));
  StopLadder killed;
  killed.Stop(seconds(1), v1::STOP_REQUESTED, seconds(100));
  EXPECT_EQ(killed.OnTime(seconds(101)), Step::kKill);
  killed.Stop(seconds(0), v1::STOP_REQUESTED, seconds(102));
  EXPECT_EQ(killed.next(), Time(seconds(102) + StopLadder::kGiveUpSoonAfter));
}

TEST(StopLadderTest, ARankThatEndsHasNoMoreSteps) {
  StopLadder ladder;
  ladder.AwaitEnd(seconds(1));
  ladder.AwaitEnd(seconds(3));
  EXPECT_EQ(ladder.next(), Time(seconds(1) + StopLadder::kGiveUpAfter)) << "from the first";
  ladder.End();
  EXPECT_FALSE(ladder.next().has_value());
  EXPECT_EQ(ladder.OnTime(seconds(100)), Step::kNothing);
}

}  // namespace
}  // namespace ds::daemon
