#pragma once

// The work of the 1-bit optimizers once they no longer exchange whole gradients.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/optim/kernels/part.h"

namespace ds::optim {

// The last update of the warm-up: the one before `freeze_step`, and no earlier than the first.
// DeepSpeed counts its initialisation as a step.
std::int64_t LastWarmUpUpdate(std::int64_t freeze_step);

// m = m + (1 - beta1) (gradient - m), with the gradient scaled.
void UpdateMomentum(const Part& part, double gradient_scale, double beta1);

// Zeroes the elements of `values` whose variance (state 1 of the part) is zero.
void ZeroWhereVarianceIs(const at::Tensor& values, const Part& part);

}  // namespace ds::optim
