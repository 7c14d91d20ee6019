#include "runtime/pipeline/stage_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/pipeline/schedules.h"

namespace ds::pipeline {
namespace {

using Step = StageInstruction::Kind;

std::string DescribeProgramOf(const Schedule& schedule, int stage) {
  const auto programs = PlanStagePrograms(schedule);
  return DescribeStageProgram(programs[static_cast<std::size_t>(stage)], schedule.shape());
}

TEST(StageProgram, OfOneStageIsThePlainStep) {
  const Schedule schedule =
      MakeSchedule(ScheduleKind::kOneForwardOneBackward, {.micro_batches = 2});
  EXPECT_EQ(DescribeProgramOf(schedule, 0), "F0 B0 F1 B1 Reduce Step");
}

TEST(StageProgram, SendsAndReceivesBetweenNeighbours) {
  const Schedule schedule =
      MakeSchedule(ScheduleKind::kOneForwardOneBackward, {.stages = 2, .micro_batches = 2});
  EXPECT_EQ(DescribeProgramOf(schedule, 0), "F0 >F0 F1 >F1 <B0 B0 <B1 B1 Reduce Step");
  EXPECT_EQ(DescribeProgramOf(schedule, 1), "<F0 F0 B0 >B0 <F1 F1 B1 >B1 Reduce Step");
}

TEST(StageProgram, PassesOnWithinAStageWithoutAMessage) {
  const Schedule schedule =
      MakeSchedule(ScheduleKind::kZeroBubbleV, {.stages = 1, .chunks = 2, .micro_batches = 1});
  EXPECT_EQ(DescribeProgramOf(schedule, 0), "F0.0 F1.0 I1.0 W1.0 Reduce1 I0.0 W0.0 Reduce0 Step");
}

TEST(StageProgram, ReducesAChunkOnceItsGradientsAreComplete) {
  for (const Schedule& schedule : AllSmallSchedules()) {
    for (const StageProgram& program : PlanStagePrograms(schedule)) {
      for (int chunk = 0; chunk < schedule.shape().chunks; ++chunk) {
        std::vector<Step> kinds;
        for (const StageInstruction& instruction : program) {
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

}  // namespace
}  // namespace ds::pipeline
