#include "daemon/job/daemon_duty.h"

#include <gtest/gtest.h>

#include <chrono>

namespace ds::daemon {
namespace {

using std::chrono::seconds;
using Next = DaemonDuty::Next;

TEST(DaemonDutyTest, ALongGraceIsCutAfterTheLease) {
  DaemonDuty duty;
  duty.OnLaunched(0, seconds(3600));
  EXPECT_EQ(duty.grace(v1::STOP_LEASE_EXPIRED), seconds(5));
  EXPECT_EQ(duty.grace(v1::STOP_DAEMON_SIGNALLED), seconds(3600));
}

TEST(DaemonDutyTest, OneGenerationAfterAnother) {
  DaemonDuty duty;
  EXPECT_TRUE(duty.CheckLaunch(3).ok());
  duty.OnLaunched(3, seconds(1));
  EXPECT_EQ(duty.CheckLaunch(3).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(duty.CheckLaunch(2).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(duty.CheckLaunch(4).code(), StatusCode::kFailedPrecondition);
  duty.OnRanksEnded();
  EXPECT_EQ(duty.CheckLaunch(4).code(), StatusCode::kFailedPrecondition) << "orphans live";
  EXPECT_EQ(duty.OnAlone(), Next::kNothing);
  EXPECT_TRUE(duty.CheckLaunch(4).ok());
}

TEST(DaemonDutyTest, ItEndsAfterItsRanks) {
  DaemonDuty idle;
  EXPECT_EQ(idle.Finish(), Next::kQuit);
  DaemonDuty duty;
  duty.OnLaunched(0, seconds(1));
  EXPECT_EQ(duty.Finish(), Next::kStopRanks);
  EXPECT_EQ(duty.CheckNewWork().code(), StatusCode::kUnavailable);
  EXPECT_EQ(duty.CheckLaunch(1).code(), StatusCode::kUnavailable);
  duty.OnRanksEnded();
  EXPECT_EQ(duty.Finish(), Next::kStopRanks);
  EXPECT_EQ(duty.OnAlone(), Next::kQuit);
}

}  // namespace
}  // namespace ds::daemon
