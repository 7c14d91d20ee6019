#include "runtime/engine/step_state.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/engine/step_result.h"

namespace ds::engine {
namespace {

using ::testing::HasSubstr;

void RunMicroBatch(StepState* state) {
  state->current.backward_is_latest = true;
  ++state->current.micro_batches;
}

TEST(StepState, ManagedStepsEndWithTheirLastMicroBatch) {
  const Accumulation three{.micro_batches = 3};
  StepState state;
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(state.IsUpdateDue(three));
    EXPECT_EQ(state.IsInLastMicroBatch(three), i == 2) << "before backward, " << i;
    RunMicroBatch(&state);
    EXPECT_EQ(state.IsInLastMicroBatch(three), i == 2) << "after backward, " << i;
    state.current.backward_is_latest = false;
  }
  EXPECT_TRUE(state.IsUpdateDue(three));
}

TEST(StepState, TheUserEndsAnUnmanagedStep) {
  const Accumulation unmanaged{.micro_batches = 3, .managed = false};
  StepState state;
  EXPECT_TRUE(state.IsUpdateDue(unmanaged));
  EXPECT_TRUE(state.IsInLastMicroBatch(unmanaged));
  state.boundary = false;
  EXPECT_FALSE(state.IsUpdateDue(unmanaged));
  EXPECT_FALSE(state.IsInLastMicroBatch(unmanaged));
}

TEST(StepState, AFinishedStepIsCountedAndLeavesNothing) {
  StepState state;
  RunMicroBatch(&state);
  EXPECT_THAT(state.CheckBetweenSteps("a nap is taken").message(), HasSubstr("seen 1 micro-batch"));
  state.Finish({.step = 1, .grad_norm = 2.5, .samples = 8});
  EXPECT_TRUE(state.CheckBetweenSteps("a nap is taken").ok());
  EXPECT_EQ(state.counts.finished, 1);
  EXPECT_EQ(state.counts.micro_batches, 1);
  EXPECT_EQ(state.counts.samples, 8);
  EXPECT_EQ(state.latest_norm, 2.5);
}

TEST(StepState, CountsGoThroughACheckpoint) {
  const StepCounts saved{.finished = 5, .applied = 4, .micro_batches = 10, .samples = 80};
  StepCounts loaded;
  nlohmann::json state = nlohmann::json::parse(saved.State().dump());
  ASSERT_TRUE(loaded.LoadState(state).ok());
  EXPECT_EQ(loaded.finished, 5);
  EXPECT_EQ(loaded.applied, 4);
  EXPECT_EQ(loaded.micro_batches, 10);
  EXPECT_EQ(loaded.samples, 80);
  state["applied_steps"] = -1;
  EXPECT_THAT(loaded.LoadState(state).message(), HasSubstr("applied_steps"));
}

// After a load of a part, the optimizer and the schedule count from another step than the engine.
TEST(StepState, CountsOfUpdatesGoThroughACheckpoint) {
  const StepCounts saved{.applied = 4, .optimizer_began = 3, .schedule_began = -2};
  StepCounts loaded;
  nlohmann::json state = nlohmann::json::parse(saved.State().dump());
  ASSERT_TRUE(loaded.LoadState(state).ok());
  EXPECT_EQ(loaded.optimizer_updates(), 1);
  EXPECT_EQ(loaded.scheduled_updates(), 6);
  for (const char* began : {"optimizer_began", "schedule_began"}) {
    nlohmann::json damaged = state;
    damaged[began] = 5;
    EXPECT_THAT(loaded.LoadState(damaged).message(), HasSubstr("began after 4 updates")) << began;
  }
}

// Losses to average are divided by their number, the caller's own are not.
TEST(StepInProgress, CountsTheMicroBatchesOfTheGradient) {
  const auto loss = [](double value) { return at::full({}, value); };
  StepInProgress step;
  step.losses = {{loss(2.0), true, 0.5}, {loss(4.0), true, 1.5}, {loss(1.0), false, 1.0}};
  EXPECT_DOUBLE_EQ(step.AddUpLosses(std::vector{2.0, 4.0, 1.0}), (2.0 * 0.5 + 4.0 * 1.5) / 3 + 1.0);
  EXPECT_DOUBLE_EQ(step.AddUpWeights(), 1.0);
}

TEST(StepInProgress, FindsTheWeightOfALossOrOfTheLatest) {
  const at::Tensor first = at::full({}, 1.0), second = at::full({}, 2.0);
  StepInProgress step;
  EXPECT_EQ(step.FindWeight(first), 1.0);
  step.returned.push_back({decltype(ReturnedLoss::loss)(first.getIntrusivePtr()), 0.25});
  step.returned.push_back({decltype(ReturnedLoss::loss)(second.getIntrusivePtr()), 0.75});
  EXPECT_EQ(step.FindWeight(first), 0.25);
  EXPECT_EQ(step.FindWeight(second), 0.75);
  EXPECT_EQ(step.FindWeight(first * 2), 0.75);
}

}  // namespace
}  // namespace ds::engine
