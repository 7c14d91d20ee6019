#include "runtime/optim/lr_schedule.h"

#include <gtest/gtest.h>

namespace ds::optim {
namespace {

using config::SchedulerConfig;
using config::SchedulerType;
using config::WarmupType;

const config::OptimizerConfig kOptimizer{.lr = 0.02};

SchedulerConfig Warmup(WarmupType type) {
  return {.type = SchedulerType::kWarmupLr,
          .warmup_min_lr = 0.01,
          .warmup_max_lr = 0.11,
          .warmup_num_steps = 10,
          .warmup_type = type};
}

TEST(LearningRate, ConstantIsTheOptimizersRate) {
  EXPECT_EQ(LearningRate(kOptimizer, {}, 0), 0.02);
  EXPECT_EQ(LearningRate(kOptimizer, {}, 5000), 0.02);
}

// DeepSpeed's WarmupLR sets the minimum when it is built, and its index 0 gives the minimum again.
TEST(LearningRate, WarmupStartsWithTheMinimumTwice) {
  for (const auto type : {WarmupType::kLog, WarmupType::kLinear}) {
    EXPECT_DOUBLE_EQ(LearningRate(kOptimizer, Warmup(type), 0), 0.01);
    EXPECT_DOUBLE_EQ(LearningRate(kOptimizer, Warmup(type), 1), 0.01);
  }
}

TEST(LearningRate, LogWarmupHasDeepSpeedsValues) {
  SchedulerConfig scheduler = Warmup(WarmupType::kLog);
  scheduler.warmup_min_lr = 0.0;
  scheduler.warmup_max_lr = 0.1;
  EXPECT_NEAR(LearningRate(kOptimizer, scheduler, 2), 0.030103, 1e-6);
  EXPECT_DOUBLE_EQ(LearningRate(kOptimizer, scheduler, 10), 0.1);
}

TEST(LearningRate, LinearWarmupRisesByEqualStepsAndStays) {
  const SchedulerConfig scheduler = Warmup(WarmupType::kLinear);
  EXPECT_DOUBLE_EQ(LearningRate(kOptimizer, scheduler, 6), 0.01 + 0.1 * 5 / 10);
  EXPECT_DOUBLE_EQ(LearningRate(kOptimizer, scheduler, 11), 0.11);
  EXPECT_DOUBLE_EQ(LearningRate(kOptimizer, scheduler, 1000), 0.11);
}

TEST(LearningRate, AWarmupOfOneStepIsTakenAsTwo) {
  SchedulerConfig scheduler = Warmup(WarmupType::kLinear);
  scheduler.warmup_num_steps = 1;
  EXPECT_DOUBLE_EQ(LearningRate(kOptimizer, scheduler, 2), 0.06);
  EXPECT_DOUBLE_EQ(LearningRate(kOptimizer, scheduler, 3), 0.11);
}

}  // namespace
}  // namespace ds::optim
