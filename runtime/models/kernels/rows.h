#pragma once

// Element-wise loops of layers, over one row or run of elements at a time. They are vectorised for
// the machine's widest instruction set (chosen at load time). They are free of LibTorch, so that
// their compiler flags affect no other code (vector_lanes.h).

#include <cstdint>

#include "runtime/base/half_float.h"

namespace ds::models {

// GELU by its tanh formula (Hendrycks and Gimpel, 2016), with one exponential per element: 0.5 x (1
// + tanh(u)) = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3). Vectorised for the machine's
// widest instruction set. Computes in fp32; an element's result does not depend on its neighbours.
// The error against the exact formula is at most two units in the last place of x.

void GeluTanh(const float* x, std::int64_t count, float* y);
void GeluTanh(const BFloat16* x, std::int64_t count, BFloat16* y);
void GeluTanh(const Float16* x, std::int64_t count, Float16* y);

// Sets gradient[i] = upstream[i] times the derivative at x[i]; `gradient` may alias `upstream`.
void GeluTanhBackward(const float* x, const float* upstream, std::int64_t count, float* gradient);
void GeluTanhBackward(const BFloat16* x, const BFloat16* upstream, std::int64_t count,
                      BFloat16* gradient);
void GeluTanhBackward(const Float16* x, const Float16* upstream, std::int64_t count,
                      Float16* gradient);

// SwiGLU (Shazeer, 2020): silu(gate) * up, silu(x) = x / (1 + e^-x), element by element in one
// pass. The backward pass recomputes silu, so only gate and up are kept. Vectorised for the
// machine's widest instruction set. Computes in fp32; an element's result does not depend on its
// neighbours.

// Two arrays of equal length.
template <typename Scalar>
struct GatePair {
  Scalar* gate;
  Scalar* up;
};

void SwiGlu(GatePair<const float> x, std::int64_t count, float* y);
void SwiGlu(GatePair<const BFloat16> x, std::int64_t count, BFloat16* y);
void SwiGlu(GatePair<const Float16> x, std::int64_t count, Float16* y);

void SwiGluBackward(GatePair<const float> x, const float* upstream, std::int64_t count,
                    GatePair<float> gradient);
void SwiGluBackward(GatePair<const BFloat16> x, const BFloat16* upstream, std::int64_t count,
                    GatePair<BFloat16> gradient);
void SwiGluBackward(GatePair<const Float16> x, const Float16* upstream, std::int64_t count,
                    GatePair<Float16> gradient);

// RMSNorm (Zhang and Sennrich, 2019) of a row: y = x s w with the scale s = 1 / sqrt(mean of x^2 +
// epsilon) and the weight w. One pass for s and one for y; the backward pass needs x, w and s only.
// Computes in fp32; x s is rounded to the element type before it is multiplied by the weight, as in
// transformers. Vectorised for the machine's widest instruction set; the order of additions is the
// same on every machine.

template <typename Scalar>
struct NormedRow {
  const Scalar* x = nullptr;
  const Scalar* weight = nullptr;
  std::int64_t width = 0;
};

// Returns the scale s.
float RmsNormRow(const NormedRow<float>& row, double epsilon, float* y);
float RmsNormRow(const NormedRow<BFloat16>& row, double epsilon, BFloat16* y);
float RmsNormRow(const NormedRow<Float16>& row, double epsilon, Float16* y);

// Destinations of the backward pass: the gradient of x is set, the row's contribution is added to
// the gradient of the weight.
template <typename Scalar>
struct NormGradients {
  Scalar* x = nullptr;      // may alias the upstream gradient
  float* weight = nullptr;  // null: not needed
};

void RmsNormRowBackward(const NormedRow<float>& row, float scale, const float* upstream,
                        const NormGradients<float>& gradients);
void RmsNormRowBackward(const NormedRow<BFloat16>& row, float scale, const BFloat16* upstream,
                        const NormGradients<BFloat16>& gradients);
void RmsNormRowBackward(const NormedRow<Float16>& row, float scale, const Float16* upstream,
                        const NormGradients<Float16>& gradients);

// Rotary position embedding (Su et al., 2021) of rows in transformers' layout: element i of a row's
// first half and element i of its second half are the two coordinates of a point, which is rotated
// by its own angle. Elements after both halves are copied. One pass; vectorised for the machine's
// widest instruction set; computes in fp32.

// Rows that are rotated by the same angles: the heads of one token. Strides are in elements.
template <typename Scalar>
struct RotatedRows {
  const Scalar* from = nullptr;
  Scalar* to = nullptr;
  std::int64_t from_stride = 0, to_stride = 0;
  std::int64_t rows = 0, width = 0;
};

// The cos and sin of `half` angles; 2 half <= width. A negative `direction` rotates backwards, as
// gradients require.
template <typename Scalar>
struct TurningAngles {
  const Scalar* cos = nullptr;
  const Scalar* sin = nullptr;
  std::int64_t half = 0;
  float direction = 1.0F;
};

void RotateRows(const RotatedRows<float>& rows, const TurningAngles<float>& angles);
void RotateRows(const RotatedRows<BFloat16>& rows, const TurningAngles<BFloat16>& angles);
void RotateRows(const RotatedRows<Float16>& rows, const TurningAngles<Float16>& angles);

// The inner loop of the language model's loss: one row of logits, vectorised for the machine's
// widest instruction set (chosen at load time). Free of LibTorch, so that its compiler flags affect
// no other code.

// Returns -log softmax(row)[label], computed in fp32. If scale != 0, overwrites the row with scale
// * (softmax(row) - onehot(label)); otherwise the row is undefined afterwards. Requires 0 <= label
// < columns. The exponential is accurate to 2 ulp. A row with an infinity or a NaN gives NaN.
float SoftmaxRow(float* row, std::int64_t columns, std::int64_t label, float scale);

// Same for 16-bit numbers. `wide` is scratch space for `columns` floats.
float SoftmaxRow(BFloat16* row, std::int64_t columns, std::int64_t label, float scale, float* wide);
float SoftmaxRow(Float16* row, std::int64_t columns, std::int64_t label, float scale, float* wide);

// The two halves of SoftmaxRow, for rows whose columns several ranks share. ExponentiateRow
// overwrites the row with e^(row - max) and returns the maximum and the sum. ScaleRow multiplies
// the row by `factor`.
struct RowSums {
  float max = 0.0F, sum = 0.0F;
};
RowSums ExponentiateRow(float* row, std::int64_t columns);
void ScaleRow(float* row, std::int64_t columns, float factor);

}  // namespace ds::models
