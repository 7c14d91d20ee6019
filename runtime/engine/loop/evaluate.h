#pragma once

// Evaluate computes the loss of a model on data that it is not trained on.

#include <cstdint>

#include "runtime/base/status.h"
#include "runtime/engine/chunk_runner.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/step_result.h"

namespace ds::engine {

// Runs `micro_batches` forward passes on each rank, without gradients and with the model in
// evaluation mode (no dropout). Changes neither parameters nor mode nor the step in progress.
// Collective; all ranks return the same numbers. The loss of data without labels is 0.
StatusOr<Evaluation> Evaluate(Engine& engine, const BatchSource& next_batch,
                              std::int64_t micro_batches);
// The same for a model that `runner` runs, and puts into evaluation mode.
StatusOr<Evaluation> Evaluate(Engine& engine, ChunkRunner& runner, const BatchSource& next_batch,
                              std::int64_t micro_batches);

}  // namespace ds::engine
