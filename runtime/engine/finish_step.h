#pragma once

// The end of a step, behind the reduction of its gradients.

#include "runtime/base/status.h"
#include "runtime/engine/step_result.h"

namespace ds::engine {

struct EngineParts;

// Norm and finite check across ranks, clip, update, schedule, report. Requires reduced gradients
// (EngineParts::ReduceGradientsOnce). Collective.
StatusOr<StepResult> FinishStep(EngineParts& parts);

}  // namespace ds::engine
