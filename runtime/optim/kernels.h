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

struct SgdCoefficients {
  float gradient_scale;
  float l2;
  float momentum;        // 0 without momentum
  float gradient_share;  // what of the gradient enters the momentum: 1 - dampening
  float direct_share;    // what of the gradient enters the update beside the momentum
  float momentum_share;  // what of the momentum enters the update
  float lr;
};
// State: momentum_buffer, or none.
void SgdKernel(const SgdCoefficients& coefficients, const FlatBlock& block);

struct AdagradCoefficients {
  float gradient_scale;
  float l2;
  float lr;
  float eps;
};
// State: sum.
void AdagradKernel(const AdagradCoefficients& coefficients, const FlatBlock& block);

struct LionCoefficients {
  float gradient_scale;
  float decay_factor;
  float one_minus_beta1;
  float one_minus_beta2;
  float lr;
};
// State: exp_avg.
void LionKernel(const LionCoefficients& coefficients, const FlatBlock& block);

struct DirectionCoefficients {
  float gradient_scale;
  float weight_decay;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float eps_inside;   // eps where it is added under the root, else 0
  float eps_outside;  // eps where it is added to the root, else 0
};
// State: exp_avg, exp_avg_sq. Updates them from the gradient.
void MomentsKernel(const DirectionCoefficients& coefficients, const FlatBlock& block);
// What the parameter would move by at rate 1, from parameter and state, into `direction`.
void DirectionKernel(const DirectionCoefficients& coefficients, const FlatBlock& block,
                     float* direction);

struct MuonCoefficients {
  float gradient_scale;
  float one_minus_momentum;
};
// State: momentum_buffer. What is to be orthogonalised goes to the block's parameter.
void MuonMomentumKernel(const MuonCoefficients& coefficients, const FlatBlock& block);
// parameter = decay * parameter - lr * gradient.
void DecayAndStepKernel(float decay, float lr, const FlatBlock& block);

// parameter += factor * values.
void AddScaledKernel(float factor, const float* values, const FlatBlock& block);

}  // namespace ds::optim
