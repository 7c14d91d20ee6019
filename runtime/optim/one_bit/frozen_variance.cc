#include "runtime/optim/one_bit/frozen_variance.h"

#include <ATen/ops/lerp.h>

#include <algorithm>

namespace ds::optim {

std::int64_t LastWarmUpUpdate(std::int64_t freeze_step) {
  return std::max<std::int64_t>(1, freeze_step - 1);
}

void UpdateMomentum(const OptimizerSlice& slice, double gradient_scale, double beta1) {
  const at::Tensor gradient = slice.gradient.to(at::kFloat);
  slice.state[0].lerp_(gradient_scale == 1.0 ? gradient : gradient.mul(gradient_scale),
                       1.0 - beta1);
}

void ZeroWithoutVariance(const at::Tensor& values, const OptimizerSlice& slice) {
  values.masked_fill_(slice.state[1].eq(0), 0.0);
}

}  // namespace ds::optim
