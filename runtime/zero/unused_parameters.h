#pragma once

// zero_optimization.ignore_unused_parameters false: a trained parameter that takes no part in the
// loss ends the run.

#include "runtime/base/status.h"
#include "runtime/zero/sharded_model.h"

namespace ds::zero {

// Fails, naming them, when there are trained parameters that no rank's backward passes have given a
// gradient to since the gradients were cleared. The same on every rank. Collective.
Status CheckNoneIsUnused(const ShardedModel& model);

}  // namespace ds::zero
