#include "cli/host/host_liveness.h"

#include <gtest/gtest.h>

namespace ds::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

HostLiveness BornAtZero() {
  return HostLiveness(LivenessThresholds::OfLease(seconds(30)), seconds(0));
}

TEST(HostLivenessTest, SilenceMakesItLateThenSuspectThenLost) {
  const HostLiveness host = BornAtZero();
  EXPECT_EQ(host.Grade(seconds(0)), HostGrade::kAlive);
  EXPECT_EQ(host.Grade(milliseconds(9'999)), HostGrade::kAlive);
  EXPECT_EQ(host.Grade(seconds(10)), HostGrade::kLate);
  EXPECT_EQ(host.Grade(seconds(20)), HostGrade::kSuspect);
  EXPECT_EQ(host.Grade(milliseconds(29'999)), HostGrade::kSuspect);
  EXPECT_EQ(host.Grade(seconds(30)), HostGrade::kLost);
}

TEST(HostLivenessTest, AnAnswerBringsItBack) {
  HostLiveness host = BornAtZero();
  host.OnAnswer(seconds(25));
  EXPECT_EQ(host.Grade(seconds(26)), HostGrade::kAlive);
  EXPECT_EQ(host.silence(seconds(26)), seconds(1));
  EXPECT_EQ(host.Grade(seconds(55)), HostGrade::kLost);
}

TEST(HostLivenessTest, ABusyHostThatSendsEventsIsAlive) {
  HostLiveness host = BornAtZero();
  for (int second = 0; second < 300; second += 5) {
    host.OnFailedRenewal("deadline exceeded");
    host.OnEvent(seconds(second));
    EXPECT_EQ(host.Grade(seconds(second + 5)), HostGrade::kAlive);
  }
  EXPECT_EQ(host.Evidence(), "60 renewals of its lease failed, the last: deadline exceeded");
}

TEST(HostLivenessTest, AnOldEventTakesNothingBack) {
  HostLiveness host = BornAtZero();
  host.OnAnswer(seconds(20));
  host.OnEvent(seconds(10));
  EXPECT_EQ(host.silence(seconds(20)), seconds(0));
}

TEST(HostLivenessTest, TimeWithoutListenerIsNotSilence) {
  HostLiveness host = BornAtZero();
  host.OnOwnPause(seconds(28));
  EXPECT_EQ(host.Grade(seconds(29)), HostGrade::kAlive);
  EXPECT_EQ(host.Grade(seconds(58)), HostGrade::kLost);
}

TEST(HostLivenessTest, TheEvidenceIsThatOfTheSilence) {
  HostLiveness host = BornAtZero();
  EXPECT_EQ(host.Evidence(), "no answer to a renewal of its lease");
  host.OnFailedRenewal("connection reset");
  EXPECT_EQ(host.Evidence(), "1 renewal of its lease failed: connection reset");
  host.OnAnswer(seconds(1));
  EXPECT_EQ(host.Evidence(), "no answer to a renewal of its lease");
}

}  // namespace
}  // namespace ds::cli
