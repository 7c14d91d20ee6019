#include "runtime/plan/pipeline/stage_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/unit/pipeline/schedules.h"

namespace ds::pipeline {
namespace {

using ::testing::HasSubstr;
using Step = Instruction::Kind;

std::string DescribeProgramOf(const PipelineSchedule& schedule, int stage) {
  const auto programs = PlanStagePrograms(schedule);
  return DescribeStageProgram(programs[static_cast<std::size_t>(stage)], schedule.shape());
}

TEST(StageProgram, OfOneStageIsThePlainStep) {
  const PipelineSchedule schedule =
      MakeSchedule(ScheduleKind::kOneForwardOneBackward, {.micro_batches = 2});
  EXPECT_EQ(DescribeProgramOf(schedule, 0), "F0 B0 F1 B1 Reduce Step");
}

TEST(StageProgram, SendsAndReceivesBetweenNeighbours) {
  const PipelineSchedule schedule =
      MakeSchedule(ScheduleKind::kOneForwardOneBackward, {.stages = 2, .micro_batches = 2});
  EXPECT_EQ(DescribeProgramOf(schedule, 0), "F0 >F0 F1 >F1 <B0 B0 <B1 B1 Reduce Step");
  EXPECT_EQ(DescribeProgramOf(schedule, 1), "<F0 F0 B0 >B0 <F1 F1 B1 >B1 Reduce Step");
}

TEST(StageProgram, PassesOnWithinAStageWithoutAMessage) {
  const PipelineSchedule schedule =
      MakeSchedule(ScheduleKind::kZeroBubbleV, {.stages = 1, .chunks = 2, .micro_batches = 1});
  EXPECT_EQ(DescribeProgramOf(schedule, 0), "F0.0 F1.0 I1.0 W1.0 Reduce1 I0.0 W0.0 Reduce0 Step");
}

TEST(StageProgram, ReducesAChunkOnceItsGradientsAreComplete) {
  for (const PipelineSchedule& schedule : AllSmallSchedules()) {
    for (const StageProgram& program : PlanStagePrograms(schedule)) {
      for (int chunk = 0; chunk < schedule.shape().chunks; ++chunk) {
        std::vector<Step> kinds;
        for (const Instruction& instruction : program) {
          const bool ends_gradient = instruction.kind == Step::kCompute &&
                                     (instruction.task.kind == Task::Kind::kBackward ||
                                      instruction.task.kind == Task::Kind::kWeightGradient);
          if (instruction.kind != Step::kStep && instruction.task.chunk == chunk &&
              (ends_gradient || instruction.kind == Step::kReduce)) {
            kinds.push_back(instruction.kind);
          }
        }
        EXPECT_EQ(std::count(kinds.begin(), kinds.end(), Step::kReduce), 1);
        EXPECT_EQ(kinds.back(), Step::kReduce);
      }
      EXPECT_EQ(program.back().kind, Step::kStep);
    }
  }
}

constexpr Instruction kReduce{Step::kReduce};
constexpr Instruction kStep{Step::kStep};

Instruction Compute(Task::Kind kind, int micro_batch) {
  return {Step::kCompute, {kind, /*chunk=*/0, micro_batch}};
}
Instruction Forward(int micro_batch) { return Compute(Task::Kind::kForward, micro_batch); }
Instruction Backward(int micro_batch) { return Compute(Task::Kind::kBackward, micro_batch); }

TEST(StageProgram, OfTheOnlyStageAlternates) {
  EXPECT_EQ(DescribeStageProgram(PlanStep(1), {}), "F0 B0 Reduce Step");
  EXPECT_EQ(DescribeStageProgram(PlanStep(3), {}), "F0 B0 F1 B1 F2 B2 Reduce Step");
}

TEST(StageProgram, OfAnyScheduleIsOneFullStep) {
  for (const PipelineSchedule& schedule : AllSmallSchedules()) {
    for (const StageProgram& program : PlanStagePrograms(schedule)) {
      const Status full = CheckStageProgram(program);
      EXPECT_TRUE(full.ok()) << full.message();
    }
  }
}

TEST(StageProgram, MayRunSeveralForwardsBeforeABackward) {
  const StageProgram warm = {Forward(0),  Forward(1),  Backward(0), Forward(2),
                             Backward(2), Backward(1), kReduce,     kStep};
  EXPECT_TRUE(CheckStageProgram(warm).ok()) << CheckStageProgram(warm).message();
}

TEST(StageProgram, IsRefusedWhereItIsNotOneStep) {
  const auto sends = [](Instruction task, Step kind) {
    task.kind = kind;
    return task;
  };
  const Instruction input = Compute(Task::Kind::kInputGradient, 0);
  const Instruction weights = Compute(Task::Kind::kWeightGradient, 0);
  const std::vector<std::pair<StageProgram, const char*>> refused = {
      {{}, "no micro-batch"},
      {{kStep}, "no micro-batch"},
      {{kReduce, kStep}, "instruction 1 of the step \"Reduce Step\" has no micro-batch"},
      {{Forward(0), kReduce, kStep}, "without its backward"},
      {{Forward(0), Forward(1), Backward(0), kReduce, kStep}, "without its backward"},
      {{Backward(0), Forward(0), kReduce, kStep},
       "instruction 1 of the step \"B0 F0 Reduce Step\""},
      {{Forward(1), Backward(1), kReduce, kStep}, "out of order"},
      {{Forward(0), Backward(0), Forward(0), Backward(0), kReduce, kStep}, "out of order"},
      {{Forward(0), Backward(0), Backward(0), kReduce, kStep}, "instruction 3"},
      {{Forward(0), Backward(-1), kReduce, kStep}, "before its forward"},
      {{Forward(0), weights, input, kReduce, kStep}, "before its other half"},
      {{Forward(0), input, kReduce, kStep}, "without its backward"},
      {{Forward(0), Backward(0), kStep, kReduce}, "instruction 3"},
      {{Forward(0), Backward(0), kReduce, kReduce}, "instruction 4"},
      {{Forward(0), kReduce, Backward(0), kReduce, kStep}, "instruction 2"},
      {{Forward(0), Backward(0), kReduce, Forward(1), Backward(1), kStep}, "after the Reduce"},
      {{Forward(0), Backward(0), kReduce, kStep, kStep}, "does not end the step"},
      {{Forward(0), Backward(0), kStep}, "before a Reduce"},
      {{Forward(0), Backward(0)}, "does not end with Step"},
      {{sends(Forward(0), Step::kSendActivation), Forward(0), Backward(0), kReduce, kStep},
       "instruction 1 of the step \">F0 F0 B0 Reduce Step\" comes before the task that makes its "
       "tensor"},
      {{Forward(0), sends(Forward(0), Step::kReceiveActivation), Backward(0), kReduce, kStep},
       "instruction 2"},
      {{Forward(0), Backward(0), sends(Backward(0), Step::kReceiveGradient), kReduce, kStep},
       "after the task that needs it"}};
  for (const auto& [program, why] : refused) {
    const Status status = CheckStageProgram(program);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << DescribeStageProgram(program, {});
    EXPECT_THAT(status.message(), HasSubstr(why));
  }
}

}  // namespace
}  // namespace ds::pipeline
