#pragma once

// RMSNorm (Zhang and Sennrich, 2019) of a row: y = x s w with the scale s = 1 / sqrt(mean of x^2 +
// epsilon) and the weight w. One pass for s and one for y; the backward pass needs x, w and s only.
// Computes in fp32; x s is rounded to the elements' type before it meets the weight, which is
// transformers' order. Vectorised for the widest instructions of the machine, with the same order
// of additions on all of them.

#include <cstdint>

#include "runtime/base/half_float.h"

namespace ds::models {

template <typename Scalar>
struct NormedRow {
  const Scalar* x = nullptr;
  const Scalar* weight = nullptr;
  std::int64_t width = 0;
};

// Returns s.
float RmsNormRow(const NormedRow<float>& row, double epsilon, float* y);
float RmsNormRow(const NormedRow<BFloat16>& row, double epsilon, BFloat16* y);

// Sets the gradient of x and adds the row's part to that of the weight.
template <typename Scalar>
struct NormGradients {
  Scalar* x = nullptr;      // may be what has arrived
  float* weight = nullptr;  // null: not wanted
};

void RmsNormRowBackward(const NormedRow<float>& row, float scale, const float* upstream,
                        const NormGradients<float>& gradients);
void RmsNormRowBackward(const NormedRow<BFloat16>& row, float scale, const BFloat16* upstream,
                        const NormGradients<BFloat16>& gradients);

}  // namespace ds::models
