#pragma once

// StagePasses: a pipeline stage's passes through its units in a step, for the plan of its memory:
// its tasks in schedule order, and their sends to and receives from other stages. Pure.

#include <cstdint>
#include <vector>

#include "runtime/plan/pipeline/schedule.h"
#include "runtime/plan/zero/step_memory.h"

namespace ds::engine {

// `chunks`: the stage's units, by chunk.
std::vector<zero::Pass> ListPasses(const pipeline::PipelineSchedule& schedule, int stage,
                                   const std::vector<zero::UnitRange>& chunks);

// Returns the number of micro-batches of a step to plan. More micro-batches only repeat the stage's
// states, except under GPipe, which holds them all.
int CountPlannedMicroBatches(pipeline::ScheduleKind kind, int stages, std::int64_t micro_batches);
// The most micro-batches that are planned under GPipe.
inline constexpr std::int64_t kMostHeld = 4096;

// BufferPartitions: adjusts the activations of blocks if the kept parts of recomputed blocks share
// one buffer (ActivationCheckpointingConfig::buffered_parts). The full buffer exists from the
// forward pass of the first recomputed block until that block, the last one, is recomputed.
struct PartitionBuffer {
  std::int64_t count = 0;
  std::int64_t part_bytes = 0;
};

// `recomputed`: by block, in the order of `blocks`.
void BufferPartitions(const PartitionBuffer& buffer, const std::vector<bool>& recomputed,
                      std::vector<zero::BlockActivations>* blocks);

}  // namespace ds::engine
