// What a plan says of updates that go on beside the model's computation or come late, against sums
// made by hand.

#include <gtest/gtest.h>

#include <vector>

#include "runtime/plan/zero/describe_step.h"
#include "runtime/plan/zero/step_memory.h"

namespace ds::zero {
namespace {

// Elements; multiples of any shard.
constexpr std::int64_t kSmall = 64 * 1024, kLarge = 256 * 1024;
constexpr std::int64_t kTotal = kLarge + 2 * kSmall;

// A table and two layers, whose parameters and state rest on the host.
StepMemoryInput MakeHostInput(const StepSetting& setting,
                              config::OffloadDevice device = config::OffloadDevice::kCpu) {
  config::DsConfig config;
  config.zero_optimization.stage = 3;
  config.zero_optimization.offload_optimizer.device = device;
  config.zero_optimization.offload_param.device = device;
  config.zero_optimization.offload_param.max_in_cpu = 0;
  config.aio.block_size = 1;
  StepMemoryInput input = DescribeStep(config, setting);
  for (const std::int64_t numel : {kLarge, kSmall, kSmall}) {
    input.units.push_back({.buckets = {{.numels = {numel}}}});
  }
  input.activations.resize(input.units.size());
  return input;
}

TEST(UpdateMemoryTest, AnOverlappedUpdateHasItsGradientUntilTheNextEnds) {
  StepMemoryInput input = MakeHostInput({.ranks = 2});
  input.tiers.updates_in_backward = true;
  const std::int64_t before = PlanStepMemory(input).peak.gradients;
  input.tiers.overlaps_update = true;
  EXPECT_EQ(before, 4 * kLarge / 2);
  EXPECT_EQ(PlanStepMemory(input).peak.gradients, 4 * (kLarge + kSmall) / 2);

  config::DsConfig config;
  config.zero_optimization.offload_optimizer = {
      .device = config::OffloadDevice::kCpu, .super_offload = true, .update_cores = 0.8};
  EXPECT_TRUE(PlanTiers(config, /*on_gpu=*/false).overlaps_update);
  EXPECT_FALSE(PlanTiers(config, /*on_gpu=*/true).overlaps_update) << "the GPU updates";
  config.zero_optimization.offload_optimizer.update_cores.reset();
  EXPECT_FALSE(PlanTiers(config, /*on_gpu=*/false).overlaps_update);
}

TEST(UpdateMemoryTest, AGpuHasTwoSubGroupsOfTheHostsStateAndHoldsLeavingOnes) {
  StepMemoryInput input = MakeHostInput({.ranks = 1, .on_gpu = true});
  EXPECT_EQ(input.tiers.most_elements, 4 << 20);
  EXPECT_EQ(input.tiers.leaving_bytes, 64 << 20);
  StepMemory memory = PlanStepMemory(input);
  EXPECT_EQ(memory.peak.optimizer_state, 8 * (kLarge + kSmall)) << "no more than a turn each";
  EXPECT_EQ(memory.between_steps.other, 12 * kTotal) << "all of it may be leaving";
  input.tiers.most_elements = kLarge / 2;
  input.tiers.leaving_bytes = 5000;
  memory = PlanStepMemory(input);
  EXPECT_EQ(memory.peak.optimizer_state, 2 * 8 * kLarge / 2) << "two of the table";
  EXPECT_EQ(memory.between_steps.other, 5000);
  EXPECT_EQ(memory.offload.host, 12 * kTotal) << "also while it is on the device";
  input.splits_sub_groups = false;
  EXPECT_EQ(PlanStepMemory(input).peak.optimizer_state, 8 * (kLarge + kSmall));
}

// DeepSpeed's max_in_cpu, as its name says.
TEST(UpdateMemoryTest, AGpuKeepsParametersOfFilesInTheHostsMemory) {
  StepMemoryInput input = MakeHostInput({.ranks = 1, .on_gpu = true}, config::OffloadDevice::kNvme);
  const OffloadedMemory before = PlanStepMemory(input).offload;
  EXPECT_EQ(before.host, 0);
  EXPECT_EQ(input.tiers.resident_parameters, StorageTier::kHost);
  input.tiers.resident_parameter_bytes = 4 * kLarge;
  const StepMemory memory = PlanStepMemory(input);
  EXPECT_EQ(memory.offload.host, 4 * kLarge);
  EXPECT_EQ(memory.offload.files, before.files - 4 * kLarge);
  EXPECT_EQ(memory.between_steps.parameters, 0);
}

// On a GPU the host has what waits, and, if asked to, the moments of the important columns.
TEST(UpdateMemoryTest, ZenFlowsGradientsWaitOnTheHostForAnyRatio) {
  constexpr std::int64_t kOwn = kTotal / 2;
  for (const bool offload : {false, true}) {
    StepMemoryInput input = MakeHostInput({.ranks = 2, .on_gpu = true});
    input.zenflow = config::ZenFlowConfig{.topk_ratio = 0.25, .offload = offload};
    const std::int64_t moments = 8 * kOwn / 4;
    StepMemory memory = PlanStepMemory(input);
    EXPECT_EQ(memory.offload.host, (4 + 8 + 4) * kOwn + (offload ? moments : 0));
    EXPECT_EQ(memory.between_steps.optimizer_state, 8 * kOwn / 4 + (offload ? 0 : moments));
    EXPECT_GE(memory.peak.other, 4 * kLarge / 2) << "the mean that a bucket is updated by";
    input.tiers.optimizer_share = 0.0;
    memory = PlanStepMemory(input);
    EXPECT_EQ(memory.offload.host, (4 + 4) * kOwn + (offload ? moments : 0));
  }
}

}  // namespace
}  // namespace ds::zero
