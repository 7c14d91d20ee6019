#include "daemon/job/daemon_duty.h"

#include <gtest/gtest.h>

#include <chrono>

namespace ds::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Next = DaemonDuty::Next;

TEST(DaemonDutyTest, ALeaseIsCountedFromTheAnswerThatARenewalNames) {
  DaemonDuty duty(seconds(10), seconds(100));
  EXPECT_EQ(duty.end_of_lease(), seconds(110));
  EXPECT_TRUE(duty.OnRenewal(seconds(0), seconds(104)).ok()) << "the first names none";
  EXPECT_EQ(duty.end_of_lease(), seconds(110));
  EXPECT_TRUE(duty.OnRenewal(seconds(104), seconds(108)).ok());
  EXPECT_EQ(duty.end_of_lease(), seconds(114)) << "not from when it came";
  EXPECT_TRUE(duty.OnRenewal(seconds(101), seconds(109)).ok()) << "one that was overtaken";
  EXPECT_EQ(duty.end_of_lease(), seconds(114));
}

TEST(DaemonDutyTest, AnAnswerThatWasNotGivenRenewsNothing) {
  DaemonDuty duty(seconds(10), seconds(100));
  for (const auto named : {seconds(105), seconds(-1)}) {
    EXPECT_EQ(duty.OnRenewal(named, seconds(104)).code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(duty.end_of_lease(), seconds(110));
}

TEST(DaemonDutyTest, TheKernelEndsItWhenGraceAndKillHaveHadTheirTime) {
  DaemonDuty duty(seconds(10), seconds(0));
  EXPECT_EQ(duty.death(), seconds(11)) << "no ranks, no grace";
  duty.OnLaunched(0, seconds(2));
  EXPECT_EQ(duty.death(), seconds(13));
  DaemonDuty patient(seconds(10), seconds(0));
  patient.OnLaunched(0, seconds(3600));
  EXPECT_EQ(patient.death(), seconds(16)) << "a long grace is cut";
  EXPECT_EQ(patient.grace(v1::STOP_LEASE_EXPIRED), seconds(5));
  EXPECT_EQ(patient.grace(v1::STOP_DAEMON_SIGNALLED), seconds(3600));
}

TEST(DaemonDutyTest, OneGenerationAfterAnother) {
  DaemonDuty duty(seconds(0), seconds(0));
  EXPECT_FALSE(duty.has_lease());
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

TEST(DaemonDutyTest, WaitsForProcessesOfARefusedLaunch) {
  DaemonDuty duty(seconds(0), seconds(0));
  duty.OnRefused();
  EXPECT_EQ(duty.CheckLaunch(0).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(duty.Finish(), Next::kNothing);
  EXPECT_EQ(duty.OnAlone(), Next::kQuit);
}

TEST(DaemonDutyTest, ItEndsAfterItsRanks) {
  DaemonDuty idle(seconds(0), seconds(0));
  EXPECT_EQ(idle.Finish(), Next::kQuit);
  DaemonDuty duty(seconds(0), seconds(0));
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
