#include "runtime/plan/pipeline/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "tests/unit/pipeline/goldens.h"
#include "tests/unit/pipeline/schedules.h"

namespace ds::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::vector<std::string> Describe(const PipelineSchedule& schedule, int stage) {
  std::vector<std::string> names;
  for (const Task& task : schedule.tasks_of(stage)) {
    names.push_back(DescribeTask(task, schedule.shape()));
  }
  return names;
}

TEST(PipelineSchedule, OneForwardOneBackwardIsDeepSpeeds) {
  const auto cases = ReadGolden("schedules");
  ASSERT_THAT(cases, SizeIs(20));
  for (const auto& golden : cases) {
    const PipelineSchedule schedule =
        MakeSchedule(ScheduleKind::kOneForwardOneBackward,
                     {.stages = golden["stages"], .micro_batches = golden["micro_batches"]});
    for (int stage = 0; stage < schedule.shape().stages; ++stage) {
      EXPECT_EQ(Describe(schedule, stage),
                golden["tasks"][static_cast<std::size_t>(stage)].get<std::vector<std::string>>())
          << golden.dump() << " stage " << stage;
    }
  }
}

TEST(PipelineSchedule, OfOneStageIsPlainAccumulation) {
  const PipelineSchedule schedule =
      MakeSchedule(ScheduleKind::kOneForwardOneBackward, {.micro_batches = 3});
  EXPECT_THAT(Describe(schedule, 0), ElementsAre("F0", "B0", "F1", "B1", "F2", "B2"));
}

TEST(PipelineSchedule, PutsWeightGradientsWhereAStageWouldWait) {
  const PipelineSchedule schedule =
      MakeSchedule(ScheduleKind::kZeroBubbleH1, {.stages = 2, .micro_batches = 3});
  EXPECT_THAT(Describe(schedule, 0),
              ElementsAre("F0", "F1", "I0", "W0", "F2", "I1", "W1", "I2", "W2"));
  EXPECT_THAT(Describe(schedule, 1),
              ElementsAre("F0", "I0", "F1", "I1", "W0", "F2", "I2", "W1", "W2"));
}

// Each micro-batch once, forward before backward, and every kind in ascending order: gradients are
// added up in the order of one stage, whatever the schedule.
TEST(PipelineSchedule, OfEveryKindHasEachTaskOnceAndInOrder) {
  const std::vector<PipelineSchedule> schedules = AllSmallSchedules();
  ASSERT_GT(schedules.size(), 300u);
  for (const PipelineSchedule& schedule : schedules) {
    for (int stage = 0; stage < schedule.shape().stages; ++stage) {
      std::map<std::pair<Task::Kind, int>, int> next;  // by kind and chunk
      for (const Task& task : schedule.tasks_of(stage)) {
        ASSERT_EQ((next[{task.kind, task.chunk}]++), task.micro_batch)
            << NameOf(schedule.kind()) << " stage " << stage;
      }
      for (const auto& [kind, count] : next) {
        EXPECT_EQ(count, schedule.shape().micro_batches) << NameOf(schedule.kind());
      }
      const std::size_t kinds =
          next.contains({Task::Kind::kBackward, 0}) ? 2 : 3;  // F, B or F, I, W
      EXPECT_EQ(next.size(), kinds * static_cast<std::size_t>(schedule.shape().chunks));
    }
  }
}

TEST(PipelineSchedule, EveryVirtualStageHasOnePlace) {
  for (const PipelineSchedule& schedule : AllSmallSchedules()) {
    std::set<std::pair<int, int>> locations;
    for (int v = 0; v < schedule.shape().virtual_stages(); ++v) {
      const VirtualStageLocation location = schedule.LocationOf(v);
      EXPECT_EQ(schedule.VirtualStageAt(location), v);
      locations.insert({location.stage, location.chunk});
    }
    EXPECT_THAT(locations, SizeIs(schedule.shape().virtual_stages()));
  }
  const PipelineSchedule v =
      MakeSchedule(ScheduleKind::kZeroBubbleV, {.stages = 3, .chunks = 2, .micro_batches = 4});
  EXPECT_EQ(v.LocationOf(0).stage, 0);
  EXPECT_EQ(v.LocationOf(5).stage, 0) << "the first stage has the first and the last blocks";
}

TEST(PipelineSchedule, HoldsNoMoreActivationsThanPlanned) {
  for (const PipelineSchedule& schedule : AllSmallSchedules()) {
    const auto [stages, chunks, micro_batches] = schedule.shape();
    for (int stage = 0; stage < stages; ++stage) {
      const int held = schedule.CountHeld(stage);
      switch (schedule.kind()) {
        case ScheduleKind::kGPipe:
          EXPECT_EQ(held, micro_batches);
          break;
        case ScheduleKind::kOneForwardOneBackward:
          EXPECT_EQ(held, std::min(stages - stage, micro_batches));
          break;
        case ScheduleKind::kInterleaved:
          EXPECT_EQ(held, std::min((stages - stage - 1) * 2 + (chunks - 1) * stages + 1,
                                   micro_batches * chunks));
          break;
        case ScheduleKind::kZeroBubbleH1:
          EXPECT_EQ(held, std::min(stages, micro_batches));
          break;
        case ScheduleKind::kZeroBubbleV:
          EXPECT_LE(held, std::min(2 * stages, 2 * micro_batches));
          break;
      }
    }
  }
}

TEST(PipelineSchedule, RefusesSettingsThatAKindDoesNotHave) {
  const auto error = [](ScheduleKind kind, const PipelineShape& shape) {
    return PipelineSchedule::Create(kind, shape).status().message();
  };
  EXPECT_THAT(error(ScheduleKind::kGPipe, {.stages = 0}), HasSubstr("at least one stage"));
  EXPECT_THAT(error(ScheduleKind::kZeroBubbleV, {.stages = 2, .chunks = 1}),
              HasSubstr("has 2 chunks a stage, not 1"));
  EXPECT_THAT(error(ScheduleKind::kOneForwardOneBackward, {.stages = 2, .chunks = 2}),
              HasSubstr("has 1 chunk a stage, not 2; interleaved has several"));
  EXPECT_THAT(error(ScheduleKind::kInterleaved, {.stages = 2, .chunks = 1, .micro_batches = 2}),
              HasSubstr("with 1 it is 1f1b"));
  EXPECT_THAT(error(ScheduleKind::kInterleaved, {.stages = 3, .chunks = 2, .micro_batches = 4}),
              HasSubstr("a multiple of 3 micro-batches (as 6), not 4"));
}

TEST(PipelineSchedule, HasANameOfEveryKind) {
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}) {
    const auto kind = ParseScheduleKind(name);
    ASSERT_TRUE(kind.ok()) << name;
    EXPECT_EQ(NameOf(*kind), name);
  }
  EXPECT_THAT(ParseScheduleKind("zb").status().message(),
              HasSubstr("there are gpipe, 1f1b, interleaved, zb-h1, zb-v"));
}

}  // namespace
}  // namespace ds::pipeline
