#pragma once

// PlanJobMemory (job_memory.h) puts a plan together of these parts. Pure.

#include <cstdint>
#include <vector>

#include "runtime/plan/memory/job_memory.h"
#include "runtime/plan/pipeline/schedule.h"
#include "runtime/plan/zero/step_memory.h"

namespace ds::engine {

// AtFirstStep and AtMost: a job whose steps see more and more of their samples (JobShape::
// efficiency), as if all of them saw what the first one does, or the most that any does. Pure.

JobShape AtFirstStep(JobShape job);
JobShape AtMost(JobShape job);

// The samples of seq_len that a micro-batch is planned as: with batches by tokens as many as hold
// max_tokens. Samples that are padded to a longer one among them come on top; how much that is
// nobody knows before the data.
std::int64_t RowsOfMicroBatch(const JobShape& job, std::int64_t micro_batch);

// StagePasses: how a stage of a pipeline goes through its units in a step, for the plan of its
// memory: what it computes by the schedule, and what of that other stages send or get. Pure.

// `chunks`: the stage's units by chunk.
std::vector<zero::Pass> ListPasses(const pipeline::Schedule& schedule, int stage,
                                   const std::vector<zero::UnitRange>& chunks);

// Counts the micro-batches of a step that are to be planned: with more of them a stage is in the
// same states again and again, but under GPipe, which holds all of them.
int CountPlannedMicroBatches(pipeline::ScheduleKind kind, int stages, std::int64_t micro_batches);
// No more of them are planned under GPipe.
inline constexpr std::int64_t kMostHeld = 4096;

// BufferParts: what blocks hold of a micro-batch where the parts that recomputed ones keep lie in
// one buffer (ActivationCheckpointingConfig::buffered_parts): all of it is there from the first of
// them in the forward pass until it is computed again, as the last one. Pure.

struct PartBuffer {
  std::int64_t count = 0;
  std::int64_t part_bytes = 0;
};

// `recomputed`: by block, in the order of `blocks`.
void BufferParts(const PartBuffer& buffer, const std::vector<bool>& recomputed,
                 std::vector<zero::BlockActivations>* blocks);

}  // namespace ds::engine
