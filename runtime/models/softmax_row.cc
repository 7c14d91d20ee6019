#include "runtime/models/softmax_row.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace ds::models {
namespace {

// Sixteen lanes in the compiler's own vector type: one AVX-512 register, two of AVX2, four of SSE
// or NEON, with the same order of additions on all of them.
constexpr std::int64_t kLanes = 16;
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Ints = std::int32_t __attribute__((vector_size(kLanes * sizeof(std::int32_t))));

#if defined(__x86_64__)
#define DS_FOR_EACH_ISA \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DS_FOR_EACH_ISA
#endif
#define DS_ALWAYS_INLINE inline __attribute__((always_inline))

DS_ALWAYS_INLINE Floats Load(const float* from) {
  Floats lanes;
  std::memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}
DS_ALWAYS_INLINE void Store(float* to, Floats lanes) { std::memcpy(to, &lanes, sizeof(lanes)); }

// e^x for x <= 0 (Cephes' expf: x = n ln 2 + r, a polynomial in r, n into the exponent). Below
// -87.3, where the result would be denormal, it gives 0.
DS_ALWAYS_INLINE Floats ExpOfNonPositive(Floats x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number
  const Floats shifted = x * 1.44269504088896341F + kRound;
  const Floats n = shifted - kRound;
  const Floats r = x - n * 0.693359375F + n * 2.12194440e-4F;
  Floats p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  Ints bits, exponent;
  std::memcpy(&bits, &p, sizeof(bits));
  std::memcpy(&exponent, &shifted, sizeof(exponent));
  bits += exponent << 23;  // the whole number sits in the low bits of `shifted`
  Floats result;
  std::memcpy(&result, &bits, sizeof(result));
  result = x < -87.3F ? Floats{} : result;
  return x <= 0.0F ? result : x;  // a NaN stays one
}

// The loop ends of a row that is no multiple of kLanes, padded with -infinity (e^-inf is 0).
struct Tail {
  float values[kLanes];
  std::int64_t count;
  Tail(const float* row, std::int64_t columns) : count(columns % kLanes) {
    std::fill_n(values, kLanes, -std::numeric_limits<float>::infinity());
    std::copy_n(row + (columns - count), count, values);
  }
};

// Overwrites the row by e^(row - max) and returns the maximum and the sum.
struct MaxAndSum {
  float max, sum;
};

DS_FOR_EACH_ISA MaxAndSum ExponentiateRow(float* row, std::int64_t columns) {
  const std::int64_t whole = columns - columns % kLanes;
  Tail tail(row, columns);
  Floats largest = Load(tail.values);
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    const Floats x = Load(row + i);
    largest = x > largest ? x : largest;
  }
  float max = largest[0];
  for (int lane = 1; lane < kLanes; ++lane) max = std::max(max, largest[lane]);
  Floats total = {};
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    const Floats e = ExpOfNonPositive(Load(row + i) - max);
    Store(row + i, e);
    total += e;
  }
  const Floats rest = ExpOfNonPositive(Load(tail.values) - max);
  total += rest;
  for (std::int64_t i = 0; i < tail.count; ++i) row[whole + i] = rest[i];
  double sum = 0.0;
  for (int lane = 0; lane < kLanes; ++lane) sum += total[lane];
  return {max, static_cast<float>(sum)};
}

DS_FOR_EACH_ISA void ScaleRow(float* row, std::int64_t columns, float factor) {
  for (std::int64_t i = 0; i < columns; ++i) row[i] *= factor;
}

DS_FOR_EACH_ISA void WidenRow(const BFloat16* from, std::int64_t columns, float* to) {
  for (std::int64_t i = 0; i < columns; ++i) to[i] = Widen(from[i]);
}

DS_FOR_EACH_ISA void RoundRow(const float* from, std::int64_t columns, BFloat16* to) {
  for (std::int64_t i = 0; i < columns; ++i) to[i] = RoundTo<BFloat16>(from[i]);
}

}  // namespace

float SoftmaxRow(float* row, std::int64_t columns, std::int64_t label, float scale) {
  const float label_logit = row[label];
  const MaxAndSum row_sum = ExponentiateRow(row, columns);
  if (scale != 0.0F) {
    ScaleRow(row, columns, scale / row_sum.sum);
    row[label] -= scale;
  }
  return std::log(row_sum.sum) - (label_logit - row_sum.max);
}

float SoftmaxRow(BFloat16* row, std::int64_t columns, std::int64_t label, float scale,
                 float* wide) {
  WidenRow(row, columns, wide);
  const float loss = SoftmaxRow(wide, columns, label, scale);
  if (scale != 0.0F) RoundRow(wide, columns, row);
  return loss;
}

}  // namespace ds::models
