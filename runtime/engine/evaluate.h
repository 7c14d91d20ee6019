#pragma once

// Evaluate: the loss of a model over data that it does not learn from.

#include <cstdint>

#include "runtime/base/status.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/executor.h"

namespace ds::engine {

// Runs so many forward passes of each rank, without gradients and with the model in evaluation mode
// (no dropout), and changes nothing: neither parameters nor mode, nor the step in progress.
// Collective; all ranks return the same numbers. The loss of data without any label is 0.
StatusOr<Evaluation> Evaluate(Engine& engine, const BatchSource& next_batch,
                              std::int64_t micro_batches);

}  // namespace ds::engine
