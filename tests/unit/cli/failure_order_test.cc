#include "cli/job/verdict/failure_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cli/job/verdict/failure_judge.h"
#include "tests/unit/cli/events.h"

namespace ds::cli {
namespace {

using testing::Exited;
using ::testing::HasSubstr;
using std::chrono_literals::operator""ms;

// An exit at `boot` by the clock of its host.
v1::Event ExitedAt(std::chrono::nanoseconds boot, v1::Event exited) {
  exited.mutable_rank_exited()->set_boot_nanos(static_cast<std::uint64_t>(boot.count()));
  return exited;
}

struct Report {
  std::string host;
  v1::Event event;
  std::optional<TimeRange> when;
};

Verdict JudgeInOrder(const std::vector<Report>& reports) {
  FailureJudge judge(0);
  for (const Report& each : reports) judge.OnEvent(each.host, each.event, each.when);
  return judge.Conclude().failure();
}

// Rank 0 printed 60 MB before its end, which its report follows.
TEST(FailureOrderTest, TheFirstByTimeIsBlamedAlthoughItsReportComesLater) {
  const Verdict verdict = JudgeInOrder({{"beta", ExitedAt(9000ms, Exited(1, 1)), {{110ms, 114ms}}},
                                        {"alpha", ExitedAt(50ms, Exited(0, 9)), {{99ms, 101ms}}}});
  EXPECT_EQ(verdict.rank, 0);
  EXPECT_EQ(verdict.exit_code, 9);
  EXPECT_THAT(verdict.proof, HasSubstr("status 9; rank 1 on beta failed 12.0 ms later"));
}

TEST(FailureOrderTest, WhereTheClocksDoNotTellTheOrderOfTheReportsCounts) {
  const Verdict verdict = JudgeInOrder({{"beta", ExitedAt(9000ms, Exited(1, 1)), {{110ms, 114ms}}},
                                        {"alpha", ExitedAt(50ms, Exited(0, 9)), {{108ms, 111ms}}}});
  EXPECT_EQ(verdict.rank, 1);
  EXPECT_THAT(verdict.proof, HasSubstr("rank 0 on alpha failed within 6.0 ms of it, in an order "
                                       "that their clocks do not tell"));
  const Verdict unknown = JudgeInOrder(
      {{"beta", Exited(1, 1), std::nullopt}, {"alpha", Exited(0, 9), {{108ms, 111ms}}}});
  EXPECT_EQ(unknown.rank, 1);
  EXPECT_THAT(unknown.proof, HasSubstr("at an unknown time: the order of the reports counts"));
}

// The estimate between hosts would not tell them apart.
TEST(FailureOrderTest, RanksOfOneHostAreComparedByItsClock) {
  const Verdict verdict = JudgeInOrder({{"beta", ExitedAt(9001ms, Exited(1, 1)), {{0ms, 500ms}}},
                                        {"beta", ExitedAt(9000ms, Exited(2, 9)), {{0ms, 500ms}}}});
  EXPECT_EQ(verdict.rank, 2);
  EXPECT_THAT(verdict.proof, HasSubstr("rank 1 on beta failed 1.0 ms later"));
}

// The wall clock of a host may be set while the job runs.
TEST(FailureOrderTest, TheWallClocksDoNotMatter) {
  const Verdict verdict = JudgeInOrder(
      {{"beta", testing::At(1, ExitedAt(9000ms, Exited(1, 1))), {{110ms, 114ms}}},
       {"alpha", testing::At(9'000'000'000, ExitedAt(50ms, Exited(0, 9))), {{99ms, 101ms}}}});
  EXPECT_EQ(verdict.rank, 0);
}

TEST(FailureOrderTest, AConsequenceIsNotBlamedHoweverEarlyItIs) {
  v1::Event missed = testing::Error(0, "rank 1 closed its connection");
  missed.mutable_rank_report()->mutable_error()->set_code(
      static_cast<std::int64_t>(StatusCode::kUnavailable));
  const Verdict verdict =
      JudgeInOrder({{"alpha", missed, std::nullopt},
                    {"alpha", ExitedAt(50ms, Exited(0, 1)), {{99ms, 101ms}}},
                    {"beta", ExitedAt(9000ms, Exited(1, 7)), {{110ms, 114ms}}}});
  EXPECT_EQ(verdict.rank, 1);
}

TEST(FailureOrderTest, FailuresDuringAStopAreOrderedToo) {
  const Verdict verdict =
      JudgeInOrder({{"beta", ExitedAt(9000ms, Exited(1, 1, 0, true)), {{110ms, 114ms}}},
                    {"alpha", ExitedAt(50ms, Exited(0, 9, 0, true)), {{99ms, 101ms}}}});
  EXPECT_EQ(verdict.rank, 0);
}

}  // namespace
}  // namespace ds::cli
