#pragma once

// LastWarmUpUpdate and the functions below are for the 1-bit optimizers' phase after the exchange
// of full gradients.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/optim/kernels/optimizer_slice.h"

namespace ds::optim {

// Returns the last update of the warm-up: the one before `freeze_step`, at least 1. DeepSpeed
// counts its initialisation as a step.
std::int64_t LastWarmUpUpdate(std::int64_t freeze_step);

// m = m + (1 - beta1) (gradient - m), with the gradient scaled.
void UpdateMomentum(const OptimizerSlice& slice, double gradient_scale, double beta1);

// Zeroes the elements of `values` with zero variance (state 1 of the slice).
void ZeroWithoutVariance(const at::Tensor& values, const OptimizerSlice& slice);

}  // namespace ds::optim
