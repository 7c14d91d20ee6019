#pragma once

// What LAMB and the 1-bit optimizers share: Adam's moments, and the direction
//   u = m / (sqrt(v) + eps) + weight_decay * p          (m / sqrt(v + eps) with eps_inside)
// without bias correction. By kernels where `kernels` says so, else by LibTorch operations.

#include <ATen/core/Tensor.h>

#include "runtime/config/ds_config.h"
#include "runtime/optim/kernels.h"
#include "runtime/optim/optimizer.h"

namespace ds::optim {

// State 0 of the part is m, state 1 is v, in all that follows.
struct DirectionSettings {
  double weight_decay = 0.0;
  bool eps_inside = false;
};
DirectionCoefficients MakeDirectionCoefficients(const config::OptimizerConfig& config,
                                                const Update& update,
                                                const DirectionSettings& settings);

// m and v follow the gradient.
void UpdateMoments(const DirectionCoefficients& c, const Part& part, bool kernels);

// u by LibTorch operations, over the views.
at::Tensor Direction(const DirectionCoefficients& c, const Part& part);

// Sums of squares over the views, in double, in one order whatever the number of threads.
struct DirectionSquares {
  double parameter = 0.0;
  double direction = 0.0;
};
DirectionSquares SumSquares(const DirectionCoefficients& c, const Part& part, bool kernels);

// p += factor * u; where the part has a narrow copy, by kernels that is written, too.
void StepAlongDirection(const DirectionCoefficients& c, const Part& part, double factor,
                        bool kernels);

}  // namespace ds::optim
