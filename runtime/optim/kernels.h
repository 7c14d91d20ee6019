#pragma once

// The inner loops of the optimizers on the CPU (their headers have the formulas): free of LibTorch,
// so that they are compiled with the flags vectorisation needs.

#include <array>
#include <cstdint>

namespace ds::optim {

// Elements that are updated together; the ranges do not overlap.
struct FlatBlock {
  static constexpr std::int64_t kMaxCount = 1024;  // all its streams fit the first-level cache
  static constexpr std::size_t kMaxStates = 3;

  float* parameter = nullptr;
  const float* gradient = nullptr;
  std::array<float*, kMaxStates> state{};  // in the order of Optimizer::state_names
  std::int64_t count = 0;
};

// Everything of one update that is the same for all elements, rounded to fp32 once.
struct AdamCoefficients {
  float gradient_scale;
  float decay_factor;  // AdamW: what the parameter is multiplied by
  float l2;            // Adam: what of the parameter is added to the gradient
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float step_size;
  float inverse_correction2;  // 1 / sqrt(1 - beta2^t)
  float eps;
};
// State: exp_avg, exp_avg_sq.
void AdamKernel(const AdamCoefficients& coefficients, const FlatBlock& block);

}  // namespace ds::optim
