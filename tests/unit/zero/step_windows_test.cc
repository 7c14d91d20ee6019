#include "runtime/plan/zero/step_windows.h"

#include <gtest/gtest.h>

namespace ds::zero {
namespace {

constexpr SteppedStage kStage{.stages = 2, .micro_batches = 4, .parameters = 1000, .trained = 800};
constexpr config::Sharding kEverything{.optimizer = true, .gradients = true, .parameters = true};

StepWindows Choose(const config::ZeroConfig& zero, const SteppedStage& stage = kStage,
                   const config::Sharding& sharding = kEverything) {
  return ChooseStepWindows(zero, sharding, stage);
}

TEST(StepWindowsTest, AStageThatFitsIsGatheredAndReducedOnceAStep) {
  const StepWindows windows = Choose({.reduce_bucket_size = 800, .max_live_parameters = 1000});
  EXPECT_TRUE(windows.parameters.full_step);
  EXPECT_TRUE(windows.gradients.full_step);
  EXPECT_EQ(DescribeWindows(windows),
            "parameters are gathered once a step: stage3_max_live_parameters (1000) holds the 1000 "
            "parameters of the stage; gradients are reduced once a step: reduce_bucket_size (800) "
            "holds the 800 gradients of the stage");
}

TEST(StepWindowsTest, OneThatDoesNotFitHasWindowsOfAMicroBatch) {
  const StepWindows windows = Choose({.reduce_bucket_size = 799, .max_live_parameters = 999});
  EXPECT_FALSE(windows.parameters.full_step);
  EXPECT_FALSE(windows.gradients.full_step);
  EXPECT_EQ(windows.parameters.why,
            "stage3_max_live_parameters (999) is below the 1000 parameters of the stage");
  EXPECT_EQ(windows.gradients.why,
            "reduce_bucket_size (799) is below the 800 gradients of the stage");
}

TEST(StepWindowsTest, ParametersGoWhereTheirNextUseIsTooFar) {
  EXPECT_TRUE(Choose({.max_reuse_distance = 2000}).parameters.full_step);
  const StepWindow window = Choose({.max_reuse_distance = 1999}).parameters;
  EXPECT_FALSE(window.full_step);
  EXPECT_EQ(window.why,
            "stage3_max_reuse_distance (1999) is below the 2000 parameters of two passes through "
            "the stage");
}

TEST(StepWindowsTest, SilentKeysHaveTheValuesOfDeepSpeed) {
  const auto choose = [](std::int64_t parameters, std::int64_t trained) {
    SteppedStage stage = kStage;
    stage.parameters = parameters;
    stage.trained = trained;
    return Choose({}, stage);
  };
  EXPECT_TRUE(choose(1'000'000'000, 500'000'000).parameters.full_step);
  EXPECT_TRUE(choose(1'000'000'000, 500'000'000).gradients.full_step);
  EXPECT_FALSE(choose(1'000'000'001, 500'000'001).parameters.full_step);
  EXPECT_FALSE(choose(1'000'000'001, 500'000'001).gradients.full_step);
}

TEST(StepWindowsTest, WithoutStagesShardsOrMicroBatchesNothingIsDecided) {
  const StepWindows full = Choose({}, kStage, {.optimizer = true});
  EXPECT_EQ(full.parameters.why, "ranks have all of them");
  EXPECT_EQ(full.gradients.why, "ranks have all of them");
  EXPECT_EQ(DescribeWindows(full), "ranks have all parameters and gradients");
  EXPECT_EQ(DescribeWindows(Choose({}, kStage, {.optimizer = true, .gradients = true})),
            "ranks have all parameters; gradients are reduced once a step: reduce_bucket_size "
            "(500000000) holds the 800 gradients of the stage");
  SteppedStage alone = kStage;
  alone.stages = 1;
  EXPECT_EQ(Choose({}, alone).gradients.why, "there are no stages");
  SteppedStage once = kStage;
  once.micro_batches = 1;
  EXPECT_EQ(Choose({}, once).parameters.why, "a step has one micro-batch");
  EXPECT_FALSE(Choose({}, once).parameters.full_step);
  EXPECT_EQ(DescribeWindows(Choose({}, once)),
            "parameters and gradients are gathered and reduced for each micro-batch: a step has "
            "one micro-batch");
}

}  // namespace
}  // namespace ds::zero
