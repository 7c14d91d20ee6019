#pragma once

// The inner loop of the language model's loss: one row of logits, vectorised for the widest
// instructions of the machine it runs on (chosen at load time). Free of LibTorch, so that its
// compiler flags touch nothing else.

#include <cstdint>

#include "runtime/base/half_float.h"

namespace ds::models {

// Returns -log softmax(row)[label], computed in fp32. With scale != 0 overwrites the row by
// scale * (softmax(row) - onehot(label)); otherwise leaves it undefined.
// Requires 0 <= label < columns. The exponential is within 2 ulp; a row with an infinity or a NaN
// gives NaN.
float SoftmaxRow(float* row, std::int64_t columns, std::int64_t label, float scale);

// The same for bfloat16; `wide` is room for `columns` floats.
float SoftmaxRow(BFloat16* row, std::int64_t columns, std::int64_t label, float scale, float* wide);

// The two halves of it, for rows of which other ranks have other columns. The first overwrites the
// row by e^(row - max) and returns the maximum and the sum; the second multiplies it.
struct RowSums {
  float max = 0.0F, sum = 0.0F;
};
RowSums ExponentiateRow(float* row, std::int64_t columns);
void ScaleRow(float* row, std::int64_t columns, float factor);

}  // namespace ds::models
