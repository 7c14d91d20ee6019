#include "cli/console/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/unit/cli/events.h"

namespace ds::cli {
namespace {

using testing::At;
using testing::Beacon;
using testing::Phase;

constexpr std::int64_t kNanosPerSecond = 1'000'000'000;

v1::Event FastStep(int step, std::int64_t unix_nanos) {
  v1::Event event = At(unix_nanos, testing::Step(step, 2.5));
  event.mutable_rank_report()->mutable_step()->set_tokens_per_second(1234.4);
  return event;
}

// By a clock that agrees with the times of the events.
bool Observe(Progress* progress, const v1::Event& event) {
  return progress->OnEvent(event, std::chrono::nanoseconds(event.unix_nanos()));
}

TEST(ProgressTest, NothingAtFirstThenThePhase) {
  Progress progress(10);
  EXPECT_EQ(progress.Line(), "");
  EXPECT_FALSE(Observe(&progress, Phase(0, "load_model")));
  EXPECT_FALSE(Observe(&progress, Phase(1, "other")));
  EXPECT_EQ(progress.Line(), "load_model");
}

TEST(ProgressTest, TimeLeftFollowsThePaceOfTheSteps) {
  Progress progress(100);
  EXPECT_TRUE(Observe(&progress, FastStep(1, 0)));
  EXPECT_EQ(progress.Line(), "step 1/100  loss 2.5000  1234 tokens/s");
  EXPECT_TRUE(Observe(&progress, FastStep(3, 4 * kNanosPerSecond)));
  EXPECT_EQ(progress.Line(), "step 3/100  loss 2.5000  1234 tokens/s  left 3m14s");
}

TEST(ProgressTest, TheLossesAreThoseOfTheFirstAndTheLastStep) {
  Progress progress(3);
  EXPECT_EQ(progress.SummarizeLoss(), "");
  Observe(&progress, testing::Step(1, 5.5));
  EXPECT_EQ(progress.SummarizeLoss(), "") << "one step has no end";
  Observe(&progress, testing::Step(2, 4.25));
  Observe(&progress, testing::Step(3, 3.125));
  EXPECT_EQ(progress.SummarizeLoss(), "loss 5.5000 at step 1, 3.1250 at step 3");
}

TEST(ProgressTest, TheLatestEvaluationStaysInSight) {
  Progress progress(3);
  EXPECT_EQ(progress.SummarizeEvaluation(), "");
  v1::Event event = testing::Step(1, 5.5);
  event.mutable_rank_report()->mutable_step()->set_json(R"({"eval_loss": 2.0})");
  Observe(&progress, event);
  Observe(&progress, testing::Step(2, 4.25));
  EXPECT_THAT(progress.Line(),
              ::testing::StartsWith("step 2/3  loss 4.2500  eval loss 2.0000 (perplexity 7.39)"));
  EXPECT_EQ(progress.SummarizeEvaluation(), "eval loss 2.0000 (perplexity 7.39) at step 1");
  v1::Event later = testing::Step(3, 4.0);
  later.mutable_rank_report()->mutable_step()->set_json(
      R"({"eval_loss": 1.0, "eval_accuracy": 0.254})");
  Observe(&progress, later);
  EXPECT_EQ(progress.SummarizeEvaluation(),
            "eval loss 1.0000 (perplexity 2.72, accuracy 25.4 %) at step 3");
}

TEST(ProgressTest, OnlyTheLastStepsMakeThePace) {
  Progress progress(1000);
  for (int step = 1; step <= 20; ++step)
    Observe(&progress, FastStep(step, step * 100 * kNanosPerSecond));
  for (int step = 21; step <= 40; ++step) {
    Observe(&progress, FastStep(step, 2000 * kNanosPerSecond + (step - 20) * kNanosPerSecond));
  }
  EXPECT_EQ(progress.Line(), "step 40/1000  loss 2.5000  1234 tokens/s  left 16m00s");
}

TEST(ProgressTest, ARestartBeginsThePaceAnew) {
  Progress progress(100);
  Observe(&progress, FastStep(10, 0));
  Observe(&progress, FastStep(12, 2 * kNanosPerSecond));
  Observe(&progress, FastStep(11, 500 * kNanosPerSecond));
  EXPECT_EQ(progress.Line(), "step 11/100  loss 2.5000  1234 tokens/s");
  Observe(&progress, FastStep(12, 501 * kNanosPerSecond));
  EXPECT_EQ(progress.Line(), "step 12/100  loss 2.5000  1234 tokens/s  left 1m28s");
}

TEST(ProgressTest, AClockThatIsSetBackLeavesThePace) {
  Progress progress(100);
  progress.OnEvent(FastStep(1, 7200 * kNanosPerSecond), std::chrono::seconds(0));
  progress.OnEvent(FastStep(3, 3600 * kNanosPerSecond), std::chrono::seconds(4));
  EXPECT_EQ(progress.Line(), "step 3/100  loss 2.5000  1234 tokens/s  left 3m14s");
}

TEST(ProgressTest, MemoryIsTheLargestRanks) {
  Progress progress(0);
  Observe(&progress, FastStep(1, 0));
  v1::Event event;
  for (const int rank : {0, 1, 2}) {
    v1::RankVital* vital = event.mutable_heartbeat()->add_ranks();
    vital->set_rank(rank);
    vital->set_rss_bytes((rank == 1 ? std::uint64_t{300} : 100) << 20);
  }
  EXPECT_FALSE(Observe(&progress, event));
  EXPECT_EQ(progress.Line(), "step 1  loss 2.5000  1234 tokens/s  300 MiB/rank");
  EXPECT_FALSE(Observe(&progress, Beacon(1, 1, 209715200)));
  EXPECT_EQ(progress.Line(), "step 1  loss 2.5000  1234 tokens/s  200 MiB/rank");
}

TEST(ProgressTest, ARankMayKnowTheTotal) {
  Progress progress(0);
  Observe(&progress, Phase(0, "train", 7));
  Observe(&progress, FastStep(7, 0));
  EXPECT_TRUE(progress.finished());
  EXPECT_EQ(progress.Line(), "step 7/7  loss 2.5000  1234 tokens/s");
}

TEST(ProgressTest, ReportsThatAreNoneAreIgnored) {
  Progress progress(0);
  v1::Event event;
  EXPECT_FALSE(Observe(&progress, event));
  event.mutable_rank_report()->mutable_step()->set_loss(1);
  EXPECT_FALSE(Observe(&progress, event));
  EXPECT_EQ(progress.Line(), "");
}

TEST(ProgressTest, Durations) {
  EXPECT_EQ(ShowDuration(0), "0s");
  EXPECT_EQ(ShowDuration(59.6), "1m00s");
  EXPECT_EQ(ShowDuration(83), "1m23s");
  EXPECT_EQ(ShowDuration(3600 * 26 + 60 * 5), "26h05m");
  EXPECT_EQ(ShowDuration(-3), "0s");
}

}  // namespace
}  // namespace ds::cli
