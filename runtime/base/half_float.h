#pragma once

// BFloat16 and Float16 hold 16-bit floating-point numbers as bits and convert them from and to
// fp32. All CPU kernels use these conversions. The results, NaN included, equal those of LibTorch's
// own conversions. The code has no branches, so loops over it vectorise for the instruction set of
// the function into which it is inlined.

#include <bit>
#include <cstdint>

namespace ds {

struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

// Conversions between 16-bit and fp32 numbers. The 16-bit numbers are bits in 32-bit words. Words
// is one such word or a compiler vector (gcc's vector_size), and Floats is the matching fp32 type.

template <typename Floats, typename Words>
[[gnu::always_inline]] inline Floats WidenBFloat16Bits(Words brain) {
  return std::bit_cast<Floats>(brain << 16);
}

// Moves exponent and mantissa to their fp32 positions and renormalises subnormals with an exact
// subtraction. Turns a signalling NaN into a quiet one.
template <typename Floats, typename Words>
[[gnu::always_inline]] inline Floats WidenFloat16Bits(Words half) {
  const Words sign = (half & 0x8000u) << 16;
  const Words exponent = half & 0x7c00u;
  const Words shifted = (half & 0x7fffu) << 13;
  const Words normal = shifted + ((127u - 15u) << 23);
  const Words quiet = (half & 0x03ffu) != 0 ? Words{} + 0x00400000u : Words{};
  const Words special = (shifted + ((255u - 31u) << 23)) | quiet;
  constexpr std::uint32_t kMagic = 113u << 23;
  const Words subnormal =
      std::bit_cast<Words>(std::bit_cast<Floats>(shifted + kMagic) - std::bit_cast<float>(kMagic));
  const Words finite = exponent == 0 ? subnormal : normal;
  return std::bit_cast<Floats>(sign | (exponent == 0x7c00u ? special : finite));
}

// Rounds to nearest, ties to even.
template <typename Words, typename Floats>
[[gnu::always_inline]] inline Words RoundToBFloat16Bits(Floats value) {
  const auto bits = std::bit_cast<Words>(value);
  const Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (bits & 0x7fffffffu) > 0x7f800000u ? Words{} + 0x7fc0u : rounded;
}

template <typename Words, typename Floats>
[[gnu::always_inline]] inline Words RoundToFloat16Bits(Floats value) {
  const auto bits = std::bit_cast<Words>(value);
  const Words sign = (bits >> 16) & 0x8000u;
  const Words magnitude = bits & 0x7fffffffu;
  // Below 2^-14 the addition itself rounds to the subnormal spacing of fp16.
  constexpr std::uint32_t kMagic = ((127u - 15u) + (23u - 10u) + 1u) << 23;
  const Words subnormal =
      std::bit_cast<Words>(std::bit_cast<Floats>(magnitude) + std::bit_cast<float>(kMagic)) -
      kMagic;
  const Words normal = (magnitude - ((127u - 15u) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const Words special = magnitude > 0x7f800000u ? Words{} + 0x7e00u : Words{} + 0x7c00u;
  const Words finite = magnitude < (113u << 23) ? subnormal : normal;
  return sign | (magnitude >= 0x477ff000u ? special : finite);
}

[[gnu::always_inline]] inline float Widen(BFloat16 value) {
  return WidenBFloat16Bits<float>(std::uint32_t{value.bits});
}
[[gnu::always_inline]] inline float Widen(Float16 value) {
  return WidenFloat16Bits<float>(std::uint32_t{value.bits});
}

template <typename Narrow>
Narrow RoundTo(float value);

template <>
[[gnu::always_inline]] inline BFloat16 RoundTo<BFloat16>(float value) {
  return {static_cast<std::uint16_t>(RoundToBFloat16Bits<std::uint32_t>(value))};
}
template <>
[[gnu::always_inline]] inline Float16 RoundTo<Float16>(float value) {
  return {static_cast<std::uint16_t>(RoundToFloat16Bits<std::uint32_t>(value))};
}

}  // namespace ds
