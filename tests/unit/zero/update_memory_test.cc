// What a plan says of updates that go on beside the model's computation or come late, against sums
// made by hand.

#include <gtest/gtest.h>

#include <vector>

#include "runtime/zero/plan/describe_step.h"
#include "runtime/zero/plan/step_memory.h"

namespace ds::zero {
namespace {

// Elements; multiples of any shard.
constexpr std::int64_t kSmall = 64 * 1024, kLarge = 256 * 1024;
constexpr std::int64_t kWhole = kLarge + 2 * kSmall;

// A table and two layers, whose parameters and state rest on the host.
StepMemoryInput MakeHostInput(const StepSetting& setting) {
  config::DsConfig config;
  config.zero_optimization.stage = 3;
  config.zero_optimization.offload_optimizer.device = config::OffloadDevice::kCpu;
  config.zero_optimization.offload_param.device = config::OffloadDevice::kCpu;
  StepMemoryInput input = DescribeStep(config, setting);
  for (const std::int64_t numel : {kLarge, kSmall, kSmall}) {
    input.units.push_back({.buckets = {{.numels = {numel}}}});
  }
  input.activations.resize(input.units.size());
  return input;
}

TEST(UpdateMemoryTest, AnUpdateBesideHasItsGradientUntilTheNextOnesEnd) {
  StepMemoryInput input = MakeHostInput({.ranks = 2});
  input.tiers.updates_in_backward = true;
  const std::int64_t before = PlanStepMemory(input).peak.gradients;
  input.tiers.updates_beside = true;
  EXPECT_EQ(before, 4 * kLarge / 2);
  EXPECT_EQ(PlanStepMemory(input).peak.gradients, 4 * (kLarge + kSmall) / 2);

  config::DsConfig config;
  config.zero_optimization.offload_optimizer = {
      .device = config::OffloadDevice::kCpu, .super_offload = true, .update_cores = 0.8};
  EXPECT_TRUE(PlanTiers(config, /*on_gpu=*/false).updates_beside);
  EXPECT_FALSE(PlanTiers(config, /*on_gpu=*/true).updates_beside) << "the GPU updates";
  config.zero_optimization.offload_optimizer.update_cores.reset();
  EXPECT_FALSE(PlanTiers(config, /*on_gpu=*/false).updates_beside);
}

// On a GPU the host has what waits, and, if asked to, the moments of the important columns.
TEST(UpdateMemoryTest, ZenFlowsGradientsWaitOnTheHostWhateverTheRatioKeeps) {
  constexpr std::int64_t kOwn = kWhole / 2;
  for (const bool offload : {false, true}) {
    StepMemoryInput input = MakeHostInput({.ranks = 2, .on_gpu = true});
    input.zenflow = config::ZenFlowConfig{.topk_ratio = 0.25, .offload = offload};
    const std::int64_t moments = 8 * kOwn / 4;
    StepMemory memory = PlanStepMemory(input);
    EXPECT_EQ(memory.away.host, (4 + 8 + 4) * kOwn + (offload ? moments : 0));
    EXPECT_EQ(memory.between_steps.optimizer_state, 8 * kOwn / 4 + (offload ? 0 : moments));
    EXPECT_GE(memory.peak.other, 4 * kLarge / 2) << "the mean that a bucket is updated by";
    input.tiers.optimizer_share = 0.0;
    memory = PlanStepMemory(input);
    EXPECT_EQ(memory.away.host, (4 + 4) * kOwn + (offload ? moments : 0));
  }
}

}  // namespace
}  // namespace ds::zero
