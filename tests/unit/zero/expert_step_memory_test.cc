// What a plan says of a step's memory where ranks have experts between them, against sums made by
// hand.

#include <gtest/gtest.h>

#include "runtime/plan/zero/describe_step.h"
#include "runtime/plan/zero/step_memory.h"

namespace ds::zero {
namespace {

constexpr std::int64_t kDense = 64 * 1024, kExpert = 16 * 1024;  // elements
constexpr int kRanks = 4;

// One unit of dense parameters and of experts, which `parts` ranks have between them.
StepMemoryInput MakeExpertInput(int stage, int parts) {
  config::DsConfig config;
  config.zero_optimization.stage = stage;
  config.parallel.expert = parts;
  StepMemoryInput input = DescribeStep(config, {.ranks = kRanks});
  input.units = {{.buckets = {{.numels = {kDense}}, {.numels = {kExpert}, .of_experts = true}}}};
  input.activations.resize(1);
  return input;
}

TEST(ExpertStepMemory, ExpertsAreShardedOverRanksWithTheSameOnes) {
  const HeldMemory halves = PlanStepMemory(MakeExpertInput(3, 2)).between_steps;
  EXPECT_EQ(halves.parameters, 4 * (kDense / 4 + kExpert / 2));
  EXPECT_EQ(halves.optimizer_state, 8 * (kDense / 4 + kExpert / 2));
  const HeldMemory quarters = PlanStepMemory(MakeExpertInput(3, 1)).between_steps;
  EXPECT_EQ(quarters.parameters, 4 * (kDense / 4 + kExpert / 4)) << "all ranks have all";
}

// What one rank alone has is whole at every stage, and so are its gradients until the update.
TEST(ExpertStepMemory, ExpertsOfOneRankAreNotSharded) {
  const StepMemory memory = PlanStepMemory(MakeExpertInput(3, kRanks));
  EXPECT_EQ(memory.between_steps.parameters, 4 * (kDense / 4 + kExpert));
  EXPECT_EQ(memory.between_steps.optimizer_state, 8 * (kDense / 4 + kExpert));
  EXPECT_EQ(memory.between_steps.comm_buffers, 4 * kDense) << "none of experts";
  StepMemoryInput two = MakeExpertInput(2, kRanks);
  two.activations[0].backward = 1;
  EXPECT_EQ(PlanStepMemory(two).peak.gradients, 4 * (kDense / 4 + kExpert));
  EXPECT_EQ(PlanStepMemory(MakeExpertInput(1, kRanks)).between_steps.parameters,
            4 * (kDense + kExpert));
}

// Rows of experts are on their way before the gradients of this rank's experts are there.
TEST(ExpertStepMemory, GradientsOfExpertsFollowThePeakOfABackwardPass) {
  constexpr std::int64_t kMuch = 100'000'000;
  StepMemoryInput input = MakeExpertInput(0, kRanks);
  input.activations[0].backward = kMuch;
  const StepMemory memory = PlanStepMemory(input);
  EXPECT_EQ(memory.when, "the backward pass of block 0");
  EXPECT_EQ(memory.peak.gradients, 4 * kDense);
  EXPECT_EQ(memory.peak.activations, kMuch);
}

}  // namespace
}  // namespace ds::zero
