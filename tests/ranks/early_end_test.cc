// Runs that keep the best evaluation's checkpoint, and that end before their total.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint_format/catalog.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/loop/train_loop.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/program.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class EarlyEndObserver : public engine::TrainLoopObserver {
 public:
  void OnStep(const StepResult& result, double /*seconds*/) override { last_step = result.step; }
  void OnCheckpoint(std::int64_t step, const fs::path& /*path*/) override { saved.push_back(step); }
  void OnRewind(const StepResult& /*result*/, const fs::path& /*path*/) override {}

  std::int64_t last_step = 0;
  std::vector<std::int64_t> saved;
};

struct Ending {
  engine::TrainLoopEnd end;
  EarlyEndObserver observer;
  engine::BestEvaluation best;
};

// Trains on two ranks. Evaluation i has the loss losses[i], on rank 1 with more_on_rank_1; each
// step of rank 0 takes a second, and the other rank's clock stands still.
Ending Train(const fs::path& root, const std::vector<double>& losses,
             engine::TrainLoopOptions options, const std::string& resume_from = "",
             const std::vector<double>& more_on_rank_1 = {}) {
  Ending outcome;
  testing::RunRanks(2, [&](comm::Communicator& world) {
    const TinyRun run{.stage = 1};
    const auto engine = MakeTinyEngine(run, world);
    engine::BestEvaluation best;
    checkpoint::Stateful* const parts[] = {&engine->state(), &best};
    checkpoint::Lineage lineage;
    ManualClock clock;
    if (!resume_from.empty()) {
      EXPECT_TRUE(checkpoint::LoadCheckpoint(root / resume_from, parts, world, &lineage).ok());
    }
    int batch = -1;
    std::size_t evaluation = 0;
    const auto next = [&]() -> StatusOr<Bundle> {
      if (world.rank() == 0) clock.Advance(std::chrono::seconds(1));
      return TinyBatch(run, world, ++batch);
    };
    engine::TrainLoopOptions own = options;
    own.checkpoint_root = root;
    own.lineage = &lineage;
    own.best = &best;
    own.clock = &clock;
    if (!losses.empty()) {
      own.evaluate = [&]() -> StatusOr<engine::Evaluation> {
        const bool differs = world.rank() == 1 && !more_on_rank_1.empty();
        const double more = differs ? more_on_rank_1.at(evaluation) : 0.0;
        return engine::Evaluation{.loss = losses.at(evaluation++) + more, .labels = 1};
      };
    }
    EarlyEndObserver observer;
    engine::TrainLoopEnd end = engine::RunTrainLoop(*engine, next, parts, own, observer);
    if (world.rank() == 0) outcome = {std::move(end), std::move(observer), best};
  });
  EXPECT_TRUE(outcome.end.status.ok()) << outcome.end.status.message();
  return outcome;
}

std::vector<std::int64_t> CheckpointsIn(const fs::path& root) {
  std::vector<std::int64_t> steps;
  const auto listed = checkpoint::ListCheckpoints(root);
  if (!listed.ok()) return steps;
  for (const auto& each : *listed) steps.push_back(each.step);
  return steps;
}

TEST(EarlyEnd, TheBestEvaluationKeepsItsCheckpointAndFormerOnesGo) {
  const testing::TemporaryFolder folder;
  const Ending run = Train(folder.path(), {3.0, 2.0, 2.5, std::nan(""), 1.5, 1.6},
                           {.total_steps = 6, .evaluate_every = 1, .save_best = true});
  EXPECT_THAT(run.observer.saved, ElementsAre(1, 2, 5));
  EXPECT_THAT(CheckpointsIn(folder.path()), ElementsAre(5));
  EXPECT_EQ(run.best.best()->step, 5);
  EXPECT_EQ(run.best.best()->loss, 1.5);
  EXPECT_THAT(run.end.early, IsEmpty());
  std::size_t left = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    left += entry.path().filename().string().starts_with("step-") ? 1 : 0;
  }
  EXPECT_EQ(left, 1u);
}

TEST(EarlyEnd, RanksThatDifferInTheLastBitsSaveTheSameStepsAndEndTogether) {
  const testing::TemporaryFolder folder;
  const Ending run =
      Train(folder.path(), {2.0, 2.0, 1.0, 1.0, 1.0},
            {.total_steps = 9, .evaluate_every = 1, .save_best = true, .patience = 2}, "",
            {0.0, -1e-15, 0.0, 0.0, -1e-15});
  EXPECT_THAT(run.observer.saved, ElementsAre(1, 3));
  EXPECT_EQ(run.observer.last_step, 5);
}

TEST(EarlyEnd, CheckpointsThatAreDueAnywayStay) {
  const testing::TemporaryFolder folder;
  const Ending run =
      Train(folder.path(), {3.0, 2.0, 1.0, 5.0},
            {.total_steps = 4, .save_every = 2, .evaluate_every = 1, .save_best = true});
  EXPECT_THAT(run.observer.saved, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(CheckpointsIn(folder.path()), ElementsAre(2, 3, 4));
}

TEST(EarlyEnd, ALimitKeepsTheNewestAndTheBest) {
  const testing::TemporaryFolder folder;
  const engine::TrainLoopOptions options{.total_steps = 8,
                                         .save_every = 1,
                                         .save_total_limit = 3,
                                         .evaluate_every = 1,
                                         .save_best = true};
  Train(folder.path(), {3.0, 1.0, 2.5, 2.0, 1.5, 1.5, 1.5, 1.5}, options);
  EXPECT_THAT(CheckpointsIn(folder.path()), ElementsAre(2, 7, 8));
  // A resumed run counts the old ones, and a new best one lets the former go.
  engine::TrainLoopOptions longer = options;
  longer.total_steps = 10;
  Train(folder.path(), {0.5, 0.7}, longer, "step-8");
  EXPECT_THAT(CheckpointsIn(folder.path()), ElementsAre(8, 9, 10));
}

TEST(EarlyEnd, EarlyStoppingEndsTheRunAndAResumeKeepsTheBest) {
  const testing::TemporaryFolder folder;
  const engine::TrainLoopOptions options{
      .total_steps = 9, .save_every = 2, .evaluate_every = 1, .patience = 3};
  const Ending run = Train(folder.path(), {2.0, 1.0, 1.1, 1.2, 1.0}, options);
  EXPECT_EQ(run.observer.last_step, 5);
  EXPECT_THAT(run.observer.saved, ElementsAre(2, 4, 5));
  EXPECT_THAT(run.end.early,
              HasSubstr("training ends at step 5 of 9: evaluations in a row without a "
                        "lower loss: 3"));
  // From step 4, with two evaluations behind the best one: one more is enough.
  const Ending again = Train(folder.path(), {1.05}, options, "step-4");
  EXPECT_EQ(again.observer.last_step, 5);
  EXPECT_EQ(again.best.best()->step, 2);
  EXPECT_EQ(again.best.best()->loss, 1.0);
  EXPECT_FALSE(again.end.early.empty());
  // From the end itself there is nothing left to do; with more patience there is.
  const Ending ended = Train(folder.path(), {9.0}, options, "step-5");
  EXPECT_EQ(ended.observer.last_step, 0);
  EXPECT_THAT(ended.end.early, HasSubstr("at step 5 of 9"));
  engine::TrainLoopOptions patient = options;
  patient.patience = 5;
  const Ending on = Train(folder.path(), {0.5, 0.4, 0.3, 0.2}, patient, "step-5");
  EXPECT_EQ(on.observer.last_step, 9);
  EXPECT_EQ(on.best.best()->loss, 0.2);
  EXPECT_THAT(on.end.early, IsEmpty());
}

TEST(EarlyEnd, WhenTheTimeIsOverTheRunEndsWithACheckpoint) {
  const testing::TemporaryFolder folder;
  const Ending run =
      Train(folder.path(), {}, {.total_steps = 9, .time_limit = std::chrono::seconds(3)});
  EXPECT_EQ(run.observer.last_step, 3);
  EXPECT_THAT(run.observer.saved, ElementsAre(3));
  EXPECT_THAT(run.end.early,
              HasSubstr("training ends at step 3 of 9: its time limit (--max_minutes) is reached"));
  // A run that comes to its total first says nothing.
  const Ending full =
      Train(folder.path(), {}, {.total_steps = 3, .time_limit = std::chrono::seconds(3)});
  EXPECT_THAT(full.end.early, IsEmpty());
}

TEST(BestEvaluation, StateRestoresItsValues) {
  engine::BestEvaluation best, other;
  EXPECT_TRUE(other.LoadState(best.State()).ok());
  EXPECT_FALSE(other.best().has_value());
  EXPECT_FALSE(best.Add(1, std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(best.Add(2, 4.0));
  EXPECT_FALSE(best.Add(3, 4.0));
  best.MarkSavedForIt();
  EXPECT_TRUE(other.LoadState(best.State()).ok());
  EXPECT_EQ(other.best()->step, 2);
  EXPECT_TRUE(other.best()->saved_for_it);
  EXPECT_EQ(other.evaluations_since(), 1);
  EXPECT_FALSE(other.LoadState({{"since", "x"}}).ok());
  EXPECT_EQ(other.evaluations_since(), 1);
}

}  // namespace
}  // namespace ds::tests
