#include "runtime/optim/kernels.h"

#include <cmath>

#include "runtime/optim/simd.h"

namespace ds::optim {

DS_SIMD_CLONES void AdamKernel(const AdamCoefficients& coefficients, const FlatBlock& block) {
  const AdamCoefficients c = coefficients;
  float* __restrict p = block.parameter;
  const float* __restrict g = block.gradient;
  float* __restrict m = block.state[0];
  float* __restrict v = block.state[1];
  for (std::int64_t i = 0; i < block.count; ++i) {
    const float gradient = g[i] * c.gradient_scale + p[i] * c.l2;
    const float first = m[i] + (gradient - m[i]) * c.one_minus_beta1;
    const float second = v[i] * c.beta2 + gradient * gradient * c.one_minus_beta2;
    m[i] = first;
    v[i] = second;
    p[i] = p[i] * c.decay_factor -
           c.step_size * first / (std::sqrt(second) * c.inverse_correction2 + c.eps);
  }
}

}  // namespace ds::optim
