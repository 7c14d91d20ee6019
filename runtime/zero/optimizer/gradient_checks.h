#pragma once

// Checks of a step's gradients after they have been reduced, before they are cleared. Collective;
// the same answer on every rank.

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/status.h"
#include "runtime/zero/sharded_model.h"

namespace ds::zero {

// Finds the gradient that is not finite, for a step whose norm is not, in the mean over ranks; of
// gradients that are no mean (1-bit optimizers), in what ranks have:
// "transformer.h.3.mlp.c_fc.weight (NaN at element 17 of the mean over ranks, first on rank 1,
// micro-step 2)": the first parameter in model order. The micro-step, from 1, and of that the rank,
// is the first in which a rank has had a loss that was not finite (`first_loss`, of this rank, from
// 0), or such a gradient among those that are looked at when they arrive. Without these words where
// none has: a matrix alone has overflowed, or a sum. Where the mean has gone (super_offload) what
// was seen to arrive: "...ln_1.bias (+Inf at element 17, rank 1, micro-step 2)". Else nothing.
std::optional<std::string> FindNonFiniteGradient(const ShardedModel& model,
                                                 std::optional<std::int64_t> first_loss);

// Holds a step to zero_optimization.ignore_unused_parameters false: fails, naming them, when there
// are trained parameters that no rank's backward passes have given a gradient to since the
// gradients were cleared.
Status CheckNoneIsUnused(const ShardedModel& model);

}  // namespace ds::zero
