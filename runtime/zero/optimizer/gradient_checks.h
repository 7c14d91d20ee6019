#pragma once

// Checks of a step's gradients, after they have been reduced and before they are cleared.
// Collective; every rank gets the same answer.

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/status.h"
#include "runtime/zero/sharded_model.h"

namespace ds::zero {

// Finds the non-finite gradient of a step whose norm is not finite. Searches the mean over ranks,
// or the ranks' own gradients if there is no mean (1-bit optimizers). Returns the first parameter
// in model order, for example "transformer.h.3.mlp.c_fc.weight (NaN at element 17 of the mean over
// ranks, first on rank 1, micro-step 2)". The micro-step (from 1) and its rank are the first at
// which a rank had a non-finite loss (`first_loss`, of this rank, from 0) or a non-finite gradient
// among the ones checked on arrival. They are left out if there was none: only a matrix or a sum
// overflowed. If the mean is gone (super_offload), returns the first one found on arrival:
// "...ln_1.bias (+Inf at element 17, rank 1, micro-step 2)". Otherwise returns nothing.
std::optional<std::string> FindNonFiniteGradient(const ShardedModel& model,
                                                 std::optional<std::int64_t> first_loss);

// Enforces zero_optimization.ignore_unused_parameters false: fails, and names them, if there are
// trained parameters that got no gradient on any rank since the gradients were cleared.
Status CheckNoneIsUnused(const ShardedModel& model);

}  // namespace ds::zero
