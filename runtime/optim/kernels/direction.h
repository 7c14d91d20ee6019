#pragma once

// Adam's moments are shared by LAMB and the 1-bit optimizers, with the direction
//   u = m / (sqrt(v) + eps) + weight_decay * p          (m / sqrt(v + eps) with eps_inside)
// without bias correction.

#include <ATen/core/Tensor.h>

#include "runtime/optim/kernels/direction_ops.h"
#include "runtime/optim/kernels/optimizer_slice.h"

namespace ds::optim {

// State 0 of the slice is m and state 1 is v in all functions below.
struct DirectionSettings {
  double beta2 = 0.999;
  double eps = 1e-8;
  bool eps_inside = false;
};
DirectionCoefficients MakeDirectionCoefficients(const SliceRates& rates,
                                                const DirectionSettings& settings);

// Updates m and v from the gradient.
void UpdateMoments(const DirectionCoefficients& c, const OptimizerSlice& slice);

// Returns u over the views.
at::Tensor ComputeDirection(const DirectionCoefficients& c, const OptimizerSlice& slice);

// Sums of squares over the views, in double. The order of addition does not depend on the number of
// threads.
struct DirectionSquares {
  double parameter = 0.0;
  double direction = 0.0;
};
DirectionSquares SumSquares(const DirectionCoefficients& c, const OptimizerSlice& slice);

// LAMB's trust ratio: |p| / |u| clamped to the limits; 1 if either norm is 0.
double ComputeTrustRatio(const DirectionSquares& squares, double least, double most);

// Adds factor * u to p, and updates the low-precision copy.
void StepAlongDirection(const DirectionCoefficients& c, const OptimizerSlice& slice, double factor);

}  // namespace ds::optim
