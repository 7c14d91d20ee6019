#pragma once

// TrainStep runs one optimizer step, from batches to updated parameters.

#include "runtime/base/status.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/executor.h"

namespace ds::engine {

// Runs gradient_accumulation_steps micro-batches and their update. Collective.
inline StatusOr<StepResult> TrainStep(Engine& engine, const BatchSource& next_batch) {
  return Executor(engine).RunStep(next_batch);
}

}  // namespace ds::engine
