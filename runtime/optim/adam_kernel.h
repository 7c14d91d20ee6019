#pragma once

// The inner loop of Adam on the CPU (adam.h has the formulas): free of LibTorch, so that it is
// compiled with the flags vectorisation needs.

#include <cstdint>

namespace ds::optim {

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

struct AdamPointers {
  float* parameter;
  const float* gradient;
  float* exp_avg;
  float* exp_avg_sq;
};

// Updates `count` elements; the four ranges do not overlap.
void UpdateAdam(const AdamCoefficients& coefficients, const AdamPointers& at, std::int64_t count);

}  // namespace ds::optim
