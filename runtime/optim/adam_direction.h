#pragma once

// What LAMB and the 1-bit optimizers share: Adam's moments, and the direction
//   u = m / (sqrt(v) + eps) + weight_decay * p          (m / sqrt(v + eps) with eps_inside)
// without bias correction. `launch` is Optimizer::Launch of the part.

#include <ATen/core/Tensor.h>

#include "runtime/config/ds_config.h"
#include "runtime/optim/kernels/flat_ops.h"
#include "runtime/optim/optimizer.h"

namespace ds::optim {

// State 0 of the part is m, state 1 is v, in all that follows.
struct DirectionSettings {
  double weight_decay = 0.0;
  double beta1 = 0.9;
  bool eps_inside = false;
};
DirectionCoefficients MakeDirectionCoefficients(const config::OptimizerConfig& config,
                                                const Update& update,
                                                const DirectionSettings& settings);

// m and v follow the gradient.
void UpdateMoments(const DirectionCoefficients& c, const Part& part, FlatUpdate launch);

// u, over the views.
at::Tensor Direction(const DirectionCoefficients& c, const Part& part, FlatUpdate launch);

// Sums of squares over the views, in double, in one order whatever the number of threads.
struct DirectionSquares {
  double parameter = 0.0;
  double direction = 0.0;
};
DirectionSquares SumSquares(const DirectionCoefficients& c, const Part& part, FlatUpdate launch);

// p += factor * u, the narrow copy included.
void StepAlongDirection(const DirectionCoefficients& c, const Part& part, double factor,
                        FlatUpdate launch);

}  // namespace ds::optim
