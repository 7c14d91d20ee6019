#pragma once

// One optimizer step, from batches to updated parameters.

#include "runtime/base/status.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/executor.h"

namespace ds::engine {

// Runs gradient_accumulation_steps micro-batches and the update they belong to. Collective.
inline StatusOr<StepResult> TrainStep(Engine& engine, const BatchSource& next_batch) {
  return Executor(engine).Run(
      pipeline::PlanStep(static_cast<int>(engine.gradient_accumulation_steps())), next_batch);
}

}  // namespace ds::engine
