#pragma once

// Checks of a step's gradients after they have been reduced, before they are cleared. Collective;
// the same answer on every rank.

#include <optional>
#include <string>

#include "runtime/base/status.h"
#include "runtime/zero/sharded_model.h"

namespace ds::zero {

// Finds the gradient that was not finite:
// "transformer.h.3.mlp.c_fc.weight (NaN at element 17, rank 1, micro-step 2)": the first micro-step
// in which a rank's own gradient was not finite, of that the first rank and there the first
// parameter in model order; micro-steps count from 1. Where every rank's own gradients were finite
// (a sum in 16 bit may still overflow), or where ranks do not look (on a GPU), the mean over ranks:
// "transformer.h.3.mlp.c_fc.weight (+Inf at element 17 of the mean over ranks)". Nothing when that
// is finite too.
std::optional<std::string> FindNonFiniteGradient(const ShardedModel& model);

// Holds a step to zero_optimization.ignore_unused_parameters false: fails, naming them, when there
// are trained parameters that no rank's backward passes have given a gradient to since the
// gradients were cleared.
Status CheckNoneIsUnused(const ShardedModel& model);

}  // namespace ds::zero
