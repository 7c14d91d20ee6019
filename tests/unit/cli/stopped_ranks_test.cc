#include "cli/job/verdict/stopped_ranks.h"

#include <gtest/gtest.h>

#include <vector>

#include "cli/job/verdict/failure_judge.h"
#include "tests/unit/cli/events.h"

namespace ds::cli {
namespace {

using std::chrono::seconds;
using testing::Beacon;
using testing::Exited;
using testing::Started;

struct Seen {
  int rank;
  bool stopped;
};

v1::Event Heartbeat(seconds when, const std::vector<Seen>& ranks) {
  v1::Event event;
  event.mutable_heartbeat()->set_monotonic_nanos(std::chrono::nanoseconds(when).count());
  for (const Seen& seen : ranks) {
    v1::RankVital* const vital = event.mutable_heartbeat()->add_ranks();
    vital->set_rank(seen.rank);
    vital->set_stopped(seen.stopped);
  }
  return event;
}

// Rank 0 runs on host a, rank 1 on host b whose clock is far ahead.
class StoppedRanksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ranks_.OnEvent("a", Started(0, 100));
    ranks_.OnEvent("b", Started(1, 101));
  }
  std::optional<StalledRank> A(int when, bool stopped) {
    return ranks_.OnEvent("a", Heartbeat(seconds(when), {{0, stopped}}));
  }
  std::optional<StalledRank> B(int when, bool stopped) {
    return ranks_.OnEvent("b", Heartbeat(seconds(when + 5000), {{1, stopped}}));
  }

  StoppedRanks ranks_{seconds(10)};
};

TEST_F(StoppedRanksTest, ARankThatStaysStoppedIsFoundWhenItsTimeIsUp) {
  EXPECT_FALSE(B(1, true).has_value());
  EXPECT_FALSE(A(9, false).has_value());
  EXPECT_FALSE(B(10, true).has_value());
  const auto stalled = B(11, true);
  ASSERT_TRUE(stalled.has_value());
  EXPECT_EQ(stalled->rank, 1);
  EXPECT_EQ(stalled->host, "b");
  EXPECT_EQ(stalled->pid, 101);
  EXPECT_EQ(stalled->since, seconds(10));
}

TEST_F(StoppedRanksTest, ARankThatContinuesInTimeStartsAnew) {
  EXPECT_FALSE(B(1, true).has_value());
  EXPECT_FALSE(B(10, false).has_value());
  EXPECT_FALSE(B(11, true).has_value());
  EXPECT_FALSE(B(20, true).has_value());
  EXPECT_TRUE(B(21, true).has_value());
}

TEST_F(StoppedRanksTest, SettingTheClockOfAHostIsNotAWait) {
  v1::Event event = Heartbeat(seconds(1), {{1, true}});
  EXPECT_FALSE(ranks_.OnEvent("b", event).has_value());
  event.set_unix_nanos(std::chrono::nanoseconds(seconds(3600)).count());
  EXPECT_FALSE(ranks_.OnEvent("b", event).has_value());
}

TEST_F(StoppedRanksTest, IgnoresAFullySuspendedJob) {
  EXPECT_FALSE(A(1, true).has_value());
  EXPECT_FALSE(B(1, true).has_value());
  EXPECT_FALSE(A(100, true).has_value());
  EXPECT_FALSE(B(100, true).has_value());
  EXPECT_FALSE(A(101, false).has_value());
  EXPECT_FALSE(B(101, true).has_value()) << "it may go on in a moment";
  EXPECT_FALSE(B(110, true).has_value());
  EXPECT_TRUE(B(111, true).has_value()) << "the other goes on";
}

TEST_F(StoppedRanksTest, EndedRanksNeitherWaitNorAreAwaited) {
  ranks_.OnEvent("a", Exited(0, 0));
  EXPECT_FALSE(B(1, true).has_value());
  EXPECT_FALSE(B(100, true).has_value());
}

TEST(FailureJudgeTest, AStalledRankIsBlamedWithItsOwnStep) {
  FailureJudge judge(2);
  judge.OnEvent("a", Beacon(0, 8));
  judge.OnEvent("b", Beacon(1, 7));
  judge.OnStall({.host = "b", .rank = 1, .pid = 101, .since = seconds(10)});
  ASSERT_TRUE(judge.failed());
  judge.OnEvent("a", Exited(0, 0, 15, /*stopping=*/true));
  const Verdict verdict = judge.Conclude().failure();
  EXPECT_EQ(verdict.cause, Cause::kStall);
  EXPECT_EQ(verdict.exit_code, 5);
  EXPECT_EQ(verdict.rank, 1);
  EXPECT_EQ(verdict.host, "b");
  EXPECT_EQ(verdict.pid, 101);
  EXPECT_EQ(verdict.step, 7);
  EXPECT_EQ(verdict.message, "rank 1 on b makes no progress while the others wait for it");
  EXPECT_EQ(verdict.proof, "process 101 has been stopped by a signal for 10.0 s");
}

}  // namespace
}  // namespace ds::cli
