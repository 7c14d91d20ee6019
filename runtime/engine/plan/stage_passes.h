#pragma once

// StagePasses: how a stage of a pipeline goes through its units in a step, for the plan of its
// memory: what it computes by the schedule, and what of that other stages send or get. Pure.

#include <vector>

#include "runtime/pipeline/schedule.h"
#include "runtime/zero/plan/step_memory.h"

namespace ds::engine {

// `chunks`: the stage's units by chunk.
std::vector<zero::Pass> ListPasses(const pipeline::Schedule& schedule, int stage,
                                   const std::vector<zero::UnitRange>& chunks);

// Counts the micro-batches of a step that are to be planned: with more of them a stage is in the
// same states again and again, but under GPipe, which holds all of them.
int CountPlannedMicroBatches(pipeline::ScheduleKind kind, int stages, std::int64_t micro_batches);
// No more of them are planned under GPipe.
inline constexpr std::int64_t kMostHeld = 4096;

}  // namespace ds::engine
