#pragma once

// One optimizer step, from batches to updated parameters.

#include <functional>

#include "runtime/base/status.h"
#include "runtime/engine/engine.h"

namespace ds::engine {

// Gives the next micro-batch of this rank.
using BatchSource = std::function<StatusOr<Bundle>()>;

// Runs gradient_accumulation_steps micro-batches and the update they belong to. Collective.
StatusOr<StepResult> TrainStep(Engine& engine, const BatchSource& next_batch);

}  // namespace ds::engine
