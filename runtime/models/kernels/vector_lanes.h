#pragma once

// Sixteen-lane float vectors for the inner loops of this folder, in GCC's vector extension.
//
// A function marked DS_FOR_EACH_ISA is compiled for several instruction sets; the widest one that
// the machine supports is chosen at load time. The functions of this header are always inlined,
// because only then are they compiled for the instruction set of their caller.
//
// Free of LibTorch: the files of those loops have compiler flags of their own, and the linker could
// take an inline function of LibTorch that was compiled with them for the whole program.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "runtime/base/half_float.h"

namespace ds::models {

// Sixteen lanes in the compiler's vector type: one AVX-512 register, two AVX2 registers, or four
// SSE or NEON registers. The number of lanes does not depend on the machine, and so neither does
// the order in which sums are added. Results differ by fused multiply-adds only.
constexpr std::int64_t kLanes = 16;
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Ints = std::int32_t __attribute__((vector_size(kLanes * sizeof(std::int32_t))));
using Words = std::uint32_t __attribute__((vector_size(kLanes * sizeof(std::uint32_t))));
using Shorts = std::uint16_t __attribute__((vector_size(kLanes * sizeof(std::uint16_t))));

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
// Loads and stores 16-bit numbers as bits, one in each lane of Words. The Load and Store below
// convert all lanes at once from these bits (half_float.h). Loops that call Widen or RoundTo for
// each lane would be compiled to scalar code.
DS_ALWAYS_INLINE Words LoadBits(const void* from) {
  Shorts halves;
  std::memcpy(&halves, from, sizeof(halves));
  return __builtin_convertvector(halves, Words);
}
DS_ALWAYS_INLINE void StoreBits(void* to, Words bits) {
  const Shorts halves = __builtin_convertvector(bits, Shorts);
  std::memcpy(to, &halves, sizeof(halves));
}
DS_ALWAYS_INLINE Floats Load(const BFloat16* from) {
  return WidenBFloat16Bits<Floats>(LoadBits(from));
}
DS_ALWAYS_INLINE Floats Load(const Float16* from) {
  return WidenFloat16Bits<Floats>(LoadBits(from));
}
DS_ALWAYS_INLINE void Store(BFloat16* to, Floats lanes) {
  StoreBits(to, RoundToBFloat16Bits<Words>(lanes));
}
DS_ALWAYS_INLINE void Store(Float16* to, Floats lanes) {
  StoreBits(to, RoundToFloat16Bits<Words>(lanes));
}

// Loads min(count, kLanes) elements, and zeros in the other lanes. `count` is the number of
// elements left in a row, at least 1, so that a loop handles full vectors and the end of the row
// alike.
template <typename Scalar>
DS_ALWAYS_INLINE Floats LoadPartial(const Scalar* from, std::int64_t count) {
  if (count >= kLanes) return Load(from);
  Scalar part[kLanes] = {};
  std::copy_n(from, count, part);
  return Load(part);
}
// Stores the first min(count, kLanes) lanes.
template <typename Scalar>
DS_ALWAYS_INLINE void StorePartial(Scalar* to, Floats lanes, std::int64_t count) {
  if (count >= kLanes) return Store(to, lanes);
  Scalar part[kLanes];
  Store(part, lanes);
  std::copy_n(part, count, to);
}

// Rounds the values to Scalar, as a store and a load would.
template <typename Scalar>
DS_ALWAYS_INLINE Floats RoundLanes(Floats values) {
  Scalar stored[kLanes];
  Store(stored, values);
  return Load(stored);
}

// Returns the sum of the lanes, added in fp64 in their order.
DS_ALWAYS_INLINE double AddLanes(Floats values) {
  double sum = 0.0;
  for (int lane = 0; lane < kLanes; ++lane) sum += values[lane];
  return sum;
}

// Computes e^x for x <= 0, as Cephes' expf does: x = n ln 2 + r with a whole n; a polynomial gives
// e^r; n is added to the exponent of its bits. Returns 0 below -87.3, where the result would be
// subnormal.
DS_ALWAYS_INLINE Floats ExpOfNonPositive(Floats x) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number
  const Floats shifted = x * 1.44269504088896341F + kRound;
  const Floats n = shifted - kRound;
  // ln 2 as the difference of two numbers. The product with the first, which has few bits, is
  // exact.
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
  bits += exponent << 23;  // the whole number is in the low bits of `shifted`
  Floats result;
  std::memcpy(&result, &bits, sizeof(result));
  result = x < -87.3F ? Floats{} : result;
  return x <= 0.0F ? result : x;  // a NaN stays a NaN
}

// The logistic function 1 / (1 + e^-x), and its complement, 1 minus it. The complement is not
// computed by a subtraction, which would cancel its digits for large x.
struct Logistic {
  Floats of, complement;
};

DS_ALWAYS_INLINE Logistic FindLogistic(Floats x) {
  const Floats small = ExpOfNonPositive(x > 0.0F ? -x : x);
  const Floats large = 1.0F / (1.0F + small);
  const Floats rest = small * large;
  return {x > 0.0F ? large : rest, x > 0.0F ? rest : large};
}

}  // namespace ds::models
