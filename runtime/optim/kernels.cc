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

DS_SIMD_CLONES void SgdKernel(const SgdCoefficients& coefficients, const FlatBlock& block) {
  const SgdCoefficients c = coefficients;
  float* __restrict p = block.parameter;
  const float* __restrict g = block.gradient;
  float* __restrict m = block.state[0];
  if (m == nullptr) {
    for (std::int64_t i = 0; i < block.count; ++i) {
      p[i] -= c.lr * (g[i] * c.gradient_scale + p[i] * c.l2);
    }
    return;
  }
  for (std::int64_t i = 0; i < block.count; ++i) {
    const float gradient = g[i] * c.gradient_scale + p[i] * c.l2;
    const float momentum = m[i] * c.momentum + gradient * c.gradient_share;
    m[i] = momentum;
    p[i] -= c.lr * (gradient * c.direct_share + momentum * c.momentum_share);
  }
}

DS_SIMD_CLONES void AdagradKernel(const AdagradCoefficients& coefficients, const FlatBlock& block) {
  const AdagradCoefficients c = coefficients;
  float* __restrict p = block.parameter;
  const float* __restrict g = block.gradient;
  float* __restrict sum = block.state[0];
  for (std::int64_t i = 0; i < block.count; ++i) {
    const float gradient = g[i] * c.gradient_scale + p[i] * c.l2;
    const float total = sum[i] + gradient * gradient;
    sum[i] = total;
    p[i] -= c.lr * gradient / (std::sqrt(total) + c.eps);
  }
}

DS_SIMD_CLONES void LionKernel(const LionCoefficients& coefficients, const FlatBlock& block) {
  const LionCoefficients c = coefficients;
  float* __restrict p = block.parameter;
  const float* __restrict g = block.gradient;
  float* __restrict m = block.state[0];
  for (std::int64_t i = 0; i < block.count; ++i) {
    const float gradient = g[i] * c.gradient_scale;
    const float mixed = m[i] + (gradient - m[i]) * c.one_minus_beta1;
    const float step = mixed > 0.0F ? c.lr : mixed < 0.0F ? -c.lr : 0.0F;
    m[i] += (gradient - m[i]) * c.one_minus_beta2;
    p[i] = p[i] * c.decay_factor - step;
  }
}

DS_SIMD_CLONES void MomentsKernel(const DirectionCoefficients& coefficients,
                                  const FlatBlock& block) {
  const DirectionCoefficients c = coefficients;
  const float* __restrict g = block.gradient;
  float* __restrict m = block.state[0];
  float* __restrict v = block.state[1];
  for (std::int64_t i = 0; i < block.count; ++i) {
    const float gradient = g[i] * c.gradient_scale;
    m[i] += (gradient - m[i]) * c.one_minus_beta1;
    v[i] = v[i] * c.beta2 + gradient * gradient * c.one_minus_beta2;
  }
}

DS_SIMD_CLONES void DirectionKernel(const DirectionCoefficients& coefficients,
                                    const FlatBlock& block, float* direction) {
  const DirectionCoefficients c = coefficients;
  const float* __restrict p = block.parameter;
  const float* __restrict m = block.state[0];
  const float* __restrict v = block.state[1];
  float* __restrict u = direction;
  for (std::int64_t i = 0; i < block.count; ++i) {
    const float root = std::sqrt(v[i] + c.eps_inside) + c.eps_outside;
    u[i] = m[i] / root + c.weight_decay * p[i];
  }
}

DS_SIMD_CLONES void MuonMomentumKernel(const MuonCoefficients& coefficients,
                                       const FlatBlock& block) {
  const MuonCoefficients c = coefficients;
  float* __restrict mixed = block.parameter;
  const float* __restrict g = block.gradient;
  float* __restrict m = block.state[0];
  for (std::int64_t i = 0; i < block.count; ++i) {
    const float gradient = g[i] * c.gradient_scale;
    const float momentum = m[i] + (gradient - m[i]) * c.one_minus_momentum;
    m[i] = momentum;
    mixed[i] = momentum + (gradient - momentum) * c.one_minus_momentum;
  }
}

DS_SIMD_CLONES void DecayAndStepKernel(float decay, float lr, const FlatBlock& block) {
  float* __restrict p = block.parameter;
  const float* __restrict u = block.gradient;
  for (std::int64_t i = 0; i < block.count; ++i) p[i] = p[i] * decay - lr * u[i];
}

DS_SIMD_CLONES void AddScaledKernel(float factor, const float* values, const FlatBlock& block) {
  float* __restrict p = block.parameter;
  const float* __restrict x = values;
  for (std::int64_t i = 0; i < block.count; ++i) p[i] += factor * x[i];
}

}  // namespace ds::optim
