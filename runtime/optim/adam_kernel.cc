#include "runtime/optim/adam_kernel.h"

#include <cmath>

#include "runtime/optim/simd.h"

namespace ds::optim {

DS_SIMD_CLONES void UpdateAdam(const AdamCoefficients& coefficients, const AdamPointers& at,
                               std::int64_t count) {
  const AdamCoefficients c = coefficients;
  float* __restrict p = at.parameter;
  const float* __restrict g = at.gradient;
  float* __restrict m = at.exp_avg;
  float* __restrict v = at.exp_avg_sq;
  for (std::int64_t i = 0; i < count; ++i) {
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
