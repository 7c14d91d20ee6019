#include "runtime/models/kernels/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/models/kernels/vector_lanes.h"

namespace ds::models {
namespace {

// The end of a row that is not a multiple of kLanes, padded with -infinity (e^-inf is 0).
struct Tail {
  float values[kLanes];
  std::int64_t count;
  Tail(const float* row, std::int64_t columns) : count(columns % kLanes) {
    std::fill_n(values, kLanes, -std::numeric_limits<float>::infinity());
    std::copy_n(row + (columns - count), count, values);
  }
};

DS_FOR_EACH_ISA RowSums Exponentiate(float* row, std::int64_t columns) {
  const std::int64_t vector_end = columns - columns % kLanes;
  Tail tail(row, columns);
  Floats largest = Load(tail.values);
  for (std::int64_t i = 0; i < vector_end; i += kLanes) {
    const Floats x = Load(row + i);
    largest = x > largest ? x : largest;
  }
  float max = largest[0];
  for (int lane = 1; lane < kLanes; ++lane) max = std::max(max, largest[lane]);
  Floats total = {};
  for (std::int64_t i = 0; i < vector_end; i += kLanes) {
    const Floats e = ExpOfNonPositive(Load(row + i) - max);
    Store(row + i, e);
    total += e;
  }
  const Floats rest = ExpOfNonPositive(Load(tail.values) - max);
  total += rest;
  for (std::int64_t i = 0; i < tail.count; ++i) row[vector_end + i] = rest[i];
  double sum = 0.0;
  for (int lane = 0; lane < kLanes; ++lane) sum += total[lane];
  return {max, static_cast<float>(sum)};
}

DS_FOR_EACH_ISA void Scale(float* row, std::int64_t columns, float factor) {
  for (std::int64_t i = 0; i < columns; ++i) row[i] *= factor;
}

DS_FOR_EACH_ISA void WidenRow(const BFloat16* from, std::int64_t columns, float* to) {
  for (std::int64_t i = 0; i < columns; ++i) to[i] = Widen(from[i]);
}
DS_FOR_EACH_ISA void WidenRow(const Float16* from, std::int64_t columns, float* to) {
  for (std::int64_t i = 0; i < columns; ++i) to[i] = Widen(from[i]);
}

DS_FOR_EACH_ISA void RoundRow(const float* from, std::int64_t columns, BFloat16* to) {
  for (std::int64_t i = 0; i < columns; ++i) to[i] = RoundTo<BFloat16>(from[i]);
}
DS_FOR_EACH_ISA void RoundRow(const float* from, std::int64_t columns, Float16* to) {
  for (std::int64_t i = 0; i < columns; ++i) to[i] = RoundTo<Float16>(from[i]);
}

template <typename Narrow>
float SoftmaxOfNarrow(Narrow* row, std::int64_t columns, std::int64_t label, float scale,
                      float* wide) {
  WidenRow(row, columns, wide);
  const float loss = SoftmaxRow(wide, columns, label, scale);
  if (scale != 0.0F) RoundRow(wide, columns, row);
  return loss;
}

}  // namespace

float SoftmaxRow(float* row, std::int64_t columns, std::int64_t label, float scale) {
  const float label_logit = row[label];
  const RowSums row_sum = Exponentiate(row, columns);
  if (scale != 0.0F) {
    Scale(row, columns, scale / row_sum.sum);
    row[label] -= scale;
  }
  return std::log(row_sum.sum) - (label_logit - row_sum.max);
}

RowSums ExponentiateRow(float* row, std::int64_t columns) { return Exponentiate(row, columns); }

void ScaleRow(float* row, std::int64_t columns, float factor) { Scale(row, columns, factor); }

float SoftmaxRow(BFloat16* row, std::int64_t columns, std::int64_t label, float scale,
                 float* wide) {
  return SoftmaxOfNarrow(row, columns, label, scale, wide);
}
float SoftmaxRow(Float16* row, std::int64_t columns, std::int64_t label, float scale, float* wide) {
  return SoftmaxOfNarrow(row, columns, label, scale, wide);
}

}  // namespace ds::models
