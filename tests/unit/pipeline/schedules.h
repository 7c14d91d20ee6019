#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "runtime/plan/pipeline/schedule.h"

namespace ds::pipeline {

inline PipelineSchedule MakeSchedule(ScheduleKind kind, const PipelineShape& shape) {
  StatusOr<PipelineSchedule> schedule = PipelineSchedule::Create(kind, shape);
  EXPECT_TRUE(schedule.ok()) << schedule.status().message();
  return *schedule;
}

// Every schedule that there is of up to 6 stages, 3 chunks and 12 micro-batches.
inline std::vector<PipelineSchedule> AllSmallSchedules() {
  std::vector<PipelineSchedule> schedules;
  for (const ScheduleKind kind :
       {ScheduleKind::kGPipe, ScheduleKind::kOneForwardOneBackward, ScheduleKind::kInterleaved,
        ScheduleKind::kZeroBubbleH1, ScheduleKind::kZeroBubbleV}) {
    for (int stages = 1; stages <= 6; ++stages) {
      for (int chunks = 1; chunks <= 3; ++chunks) {
        for (int micro_batches = 1; micro_batches <= 12; ++micro_batches) {
          StatusOr<PipelineSchedule> schedule = PipelineSchedule::Create(
              kind, {.stages = stages, .chunks = chunks, .micro_batches = micro_batches});
          if (schedule.ok()) schedules.push_back(*std::move(schedule));
        }
      }
    }
  }
  return schedules;
}

}  // namespace ds::pipeline
