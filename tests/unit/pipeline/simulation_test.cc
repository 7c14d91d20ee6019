#include "runtime/plan/pipeline/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/unit/pipeline/schedules.h"

namespace ds::pipeline {
namespace {

using ::testing::HasSubstr;

StepTimes MakeTimes(const PipelineSchedule& schedule, const TaskTimes& times,
                    double transfer = 0.0) {
  return {.tasks = std::vector<TaskTimes>(
              static_cast<std::size_t>(schedule.shape().virtual_stages()), times),
          .transfer = transfer};
}

Timeline Simulate(const PipelineSchedule& schedule, const TaskTimes& times) {
  const auto timeline =
      SimulateStep(schedule, PlanStagePrograms(schedule), MakeTimes(schedule, times));
  EXPECT_TRUE(timeline.ok()) << NameOf(schedule.kind()) << ": " << timeline.status().message();
  return timeline.ok() ? *timeline : Timeline();
}

// All schedules of up to 6 stages and 12 micro-batches, exhaustively: every program comes to its
// end, with messages in order and each task behind its input.
TEST(PipelineSimulation, NoSmallScheduleHasADeadlock) {
  for (const PipelineSchedule& schedule : AllSmallSchedules()) {
    const auto timeline = SimulateStep(schedule, PlanStagePrograms(schedule),
                                       MakeTimes(schedule, {1.0, 1.3, 0.7}, /*transfer=*/0.4));
    EXPECT_TRUE(timeline.ok()) << NameOf(schedule.kind()) << " of " << schedule.shape().stages
                               << " stages and " << schedule.shape().micro_batches
                               << " micro-batches: " << timeline.status().message();
  }
}

// The time of a step as the papers say it, with equal F, B and W of 1.
double ExpectedLength(const PipelineSchedule& schedule) {
  const double stages = schedule.shape().stages, micro_batches = schedule.shape().micro_batches;
  const double chunks = schedule.shape().chunks;
  switch (schedule.kind()) {
    case ScheduleKind::kGPipe:
    case ScheduleKind::kOneForwardOneBackward:
      return 3.0 * (micro_batches + stages - 1);
    case ScheduleKind::kInterleaved:
      return 3.0 * (micro_batches * chunks + stages - 1);
    case ScheduleKind::kZeroBubbleH1:  // with few micro-batches, the way down and up
      return std::max(3.0 * micro_batches + stages - 1, 2.0 * (stages + micro_batches) - 1);
    case ScheduleKind::kZeroBubbleV:
      return std::max(6.0 * micro_batches + stages - 1, 4.0 * (stages + micro_batches) - 2);
  }
  return 0.0;
}

TEST(PipelineSimulation, BubblesAreThoseOfTheFormulas) {
  for (const PipelineSchedule& schedule : AllSmallSchedules()) {
    const Timeline timeline = Simulate(schedule, {});
    const double length = ExpectedLength(schedule);
    EXPECT_DOUBLE_EQ(timeline.Length(), length)
        << NameOf(schedule.kind()) << " " << schedule.shape().stages << " "
        << schedule.shape().chunks << " " << schedule.shape().micro_batches;
    const double work = 3.0 * schedule.shape().chunks * schedule.shape().micro_batches;
    EXPECT_NEAR(timeline.BubbleFraction(), 1.0 - work / length, 1e-12);
  }
}

// With unequal times: (S-1)(F+B+W) idle for 1F1B, (S-1)(F+B-W) for ZB-H1.
TEST(PipelineSimulation, BubblesFollowTheTimesOfTheTasks) {
  const TaskTimes times{.forward = 1.0, .input_gradient = 1.5, .weight_gradient = 0.5};
  const PipelineShape shape{.stages = 4, .micro_batches = 8};
  const double work = 8 * 3.0;
  const Timeline plain = Simulate(MakeSchedule(ScheduleKind::kOneForwardOneBackward, shape), times);
  const Timeline split = Simulate(MakeSchedule(ScheduleKind::kZeroBubbleH1, shape), times);
  EXPECT_DOUBLE_EQ(plain.Length(), work + 3 * 3.0);
  EXPECT_DOUBLE_EQ(split.Length(), work + 3 * 2.0);
}

// No stage waits between its first and its last task.
TEST(PipelineSimulation, AFullVHasNoBubbleWithinAStage) {
  for (int stages = 2; stages <= 6; ++stages) {
    const PipelineSchedule schedule =
        MakeSchedule(ScheduleKind::kZeroBubbleV,
                     {.stages = stages, .chunks = 2, .micro_batches = 2 * stages - 1});
    for (const auto& spans : Simulate(schedule, {}).spans) {
      EXPECT_DOUBLE_EQ(spans.back().end - spans.front().begin, 6.0 * (2 * stages - 1));
    }
  }
}

TEST(PipelineSimulation, FindsStagesThatWaitForEachOther) {
  const PipelineSchedule schedule =
      MakeSchedule(ScheduleKind::kOneForwardOneBackward, {.stages = 2, .micro_batches = 1});
  auto programs = PlanStagePrograms(schedule);
  std::rotate(programs[0].begin(), programs[0].begin() + 2, programs[0].begin() + 3);
  const auto timeline = SimulateStep(schedule, programs, MakeTimes(schedule, {}));
  EXPECT_THAT(timeline.status().message(),
              HasSubstr("stage 0 waits for B0 of stage 1, stage 1 waits for F0 of stage 0"));
}

TEST(PipelineSimulation, FindsATaskBeforeItsInput) {
  const PipelineSchedule schedule =
      MakeSchedule(ScheduleKind::kOneForwardOneBackward, {.stages = 2, .micro_batches = 1});
  auto programs = PlanStagePrograms(schedule);
  std::swap(programs[1][0], programs[1][1]);
  EXPECT_THAT(SimulateStep(schedule, programs, MakeTimes(schedule, {})).status().message(),
              HasSubstr("stage 1: F0 comes before its input"));
}

TEST(PipelineSimulation, FindsMessagesInAnotherOrderThanTheyAreSent) {
  const PipelineSchedule schedule =
      MakeSchedule(ScheduleKind::kGPipe, {.stages = 2, .micro_batches = 2});
  auto programs = PlanStagePrograms(schedule);
  std::swap(programs[0][1], programs[0][3]);  // sends of F0 and F1
  EXPECT_THAT(SimulateStep(schedule, programs, MakeTimes(schedule, {})).status().message(),
              HasSubstr("is received in another order than it is sent"));
}

TEST(PipelineSimulation, FindsTensorsWithoutReceiver) {
  const PipelineSchedule schedule =
      MakeSchedule(ScheduleKind::kOneForwardOneBackward, {.stages = 2, .micro_batches = 1});
  auto programs = PlanStagePrograms(schedule);
  programs[0].insert(programs[0].begin() + 2, programs[0][1]);
  EXPECT_THAT(SimulateStep(schedule, programs, MakeTimes(schedule, {})).status().message(),
              HasSubstr("sends stage 1 a tensor that it does not receive"));
}

}  // namespace
}  // namespace ds::pipeline
