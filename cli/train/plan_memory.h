#pragma once

// PlanMemory: what the ranks of a training job will hold of their host's memory, before any of them
// starts.

#include "cli/job/job_plan.h"
#include "cli/train/train_inputs.h"

namespace ds::cli {

// For ranks that compute on CPUs. Nothing is known (rank_bytes 0) of a model whose family cannot be
// predicted, or of which a part is frozen.
MemoryNeed PlanMemory(const TrainInputs& inputs, const WorldPlan& world);

}  // namespace ds::cli
