#include "runtime/engine/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ds::engine {
namespace {

using ::testing::HasSubstr;
using Kind = Instruction::Kind;

constexpr Instruction kReduce{Kind::kReduce};
constexpr Instruction kStep{Kind::kStep};

Instruction Forward(std::int64_t micro_batch) { return {Kind::kForward, micro_batch}; }
Instruction Backward(std::int64_t micro_batch) { return {Kind::kBackward, micro_batch}; }

TEST(StepPlan, OfOneStageAlternates) {
  EXPECT_EQ(DescribeStepPlan(PlanStep(1)), "F0 B0 Reduce Step");
  EXPECT_EQ(DescribeStepPlan(PlanStep(3)), "F0 B0 F1 B1 F2 B2 Reduce Step");
  for (const std::int64_t count : {1, 2, 17}) EXPECT_TRUE(CheckStepPlan(PlanStep(count)).ok());
}

TEST(StepPlan, MayRunSeveralForwardsBeforeABackward) {
  const StepPlan warm = {Forward(0),  Forward(1),  Backward(0), Forward(2),
                         Backward(2), Backward(1), kReduce,     kStep};
  EXPECT_TRUE(CheckStepPlan(warm).ok()) << CheckStepPlan(warm).message();
}

TEST(StepPlan, IsRefusedWhereItIsNotOneStep) {
  const std::vector<std::pair<StepPlan, const char*>> refused = {
      {{}, "no micro-batch"},
      {{kReduce, kStep}, "no micro-batch"},
      {{Forward(0), kReduce, kStep}, "without its backward"},
      {{Forward(0), Forward(1), Backward(0), kReduce, kStep}, "without its backward"},
      {{Backward(0), Forward(0), kReduce, kStep},
       "instruction 1 of the step \"B0 F0 Reduce Step\""},
      {{Forward(1), Backward(1), kReduce, kStep}, "out of order"},
      {{Forward(0), Backward(0), Forward(0), Backward(0), kReduce, kStep}, "out of order"},
      {{Forward(0), Backward(0), Backward(0), kReduce, kStep}, "instruction 3"},
      {{Forward(0), Backward(-1), kReduce, kStep}, "before its forward"},
      {{Forward(0), Backward(0), kStep, kReduce}, "instruction 3"},
      {{Forward(0), Backward(0), kReduce, kReduce}, "instruction 4"},
      {{Forward(0), kReduce, Backward(0), kReduce, kStep}, "instruction 2"},
      {{Forward(0), Backward(0), kReduce, kStep, kStep}, "instruction 3"},
      {{Forward(0), Backward(0), kStep}, "instruction 2"},
      {{kStep}, "instruction 1"},
      {{Forward(0), Backward(0)}, "instruction 1"}};
  for (const auto& [plan, why] : refused) {
    const Status status = CheckStepPlan(plan);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << DescribeStepPlan(plan);
    EXPECT_THAT(status.message(), HasSubstr(why));
  }
}

}  // namespace
}  // namespace ds::engine
