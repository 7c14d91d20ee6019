#include "daemon/job/daemon_lease.h"

#include <gtest/gtest.h>

#include <chrono>

namespace ds::daemon {
namespace {

using std::chrono::seconds;

TEST(DaemonLeaseTest, ADaemonOfThisMachineHasNone) {
  EXPECT_FALSE(DaemonLease(seconds(0), seconds(100)).exists());
  EXPECT_TRUE(DaemonLease(seconds(1), seconds(100)).exists());
}

TEST(DaemonLeaseTest, ALeaseIsCountedFromTheAnswerThatARenewalNames) {
  DaemonLease lease(seconds(10), seconds(100));
  EXPECT_EQ(lease.end(), seconds(110));
  EXPECT_TRUE(lease.OnRenewal(seconds(0), seconds(104)).ok()) << "the first names none";
  EXPECT_EQ(lease.end(), seconds(110));
  EXPECT_TRUE(lease.OnRenewal(seconds(104), seconds(108)).ok());
  EXPECT_EQ(lease.end(), seconds(114)) << "not from when it came";
  EXPECT_TRUE(lease.OnRenewal(seconds(101), seconds(109)).ok()) << "one that was overtaken";
  EXPECT_EQ(lease.end(), seconds(114));
}

TEST(DaemonLeaseTest, AnAnswerThatWasNotGivenRenewsNothing) {
  DaemonLease lease(seconds(10), seconds(100));
  for (const auto named : {seconds(105), seconds(-1)}) {
    EXPECT_EQ(lease.OnRenewal(named, seconds(104)).code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(lease.end(), seconds(110));
}

TEST(DaemonLeaseTest, TheKernelEndsItWhenGraceAndKillHaveHadTheirTime) {
  DaemonLease lease(seconds(10), seconds(0));
  EXPECT_EQ(lease.death(), seconds(11)) << "no ranks, no grace";
  lease.SetGrace(seconds(2));
  EXPECT_EQ(lease.death(), seconds(13));
  DaemonLease patient(seconds(10), seconds(0));
  patient.SetGrace(seconds(3600));
  EXPECT_EQ(patient.death(), seconds(16)) << "a long grace is cut";
}

}  // namespace
}  // namespace ds::daemon
