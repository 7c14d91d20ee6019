#pragma once

// BFloat16 and Float16: 16-bit floating-point numbers as their bits, and their conversions from and
// to fp32, the one implementation for the CPU's kernels. The values, NaN included, are those of
// LibTorch's own conversions. Free of branches, so that loops over them vectorise, for whatever
// instruction set the function that they are inlined into is compiled for.

#include <bit>
#include <cstdint>

namespace ds {

struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

[[gnu::always_inline]] inline float Widen(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

// Exponent and mantissa move to fp32's places; subnormals are renormalised by an exact subtraction.
// A signalling NaN becomes a quiet one.
[[gnu::always_inline]] inline float Widen(Float16 value) {
  const std::uint32_t half = value.bits;
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = half & 0x7c00u;
  const std::uint32_t shifted = (half & 0x7fffu) << 13;
  const std::uint32_t normal = shifted + ((127u - 15u) << 23);
  const std::uint32_t quiet = (half & 0x03ffu) != 0 ? 0x00400000u : 0u;
  const std::uint32_t special = (shifted + ((255u - 31u) << 23)) | quiet;
  constexpr std::uint32_t kMagic = 113u << 23;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(
      std::bit_cast<float>(shifted + kMagic) - std::bit_cast<float>(kMagic));
  const std::uint32_t finite = exponent == 0 ? subnormal : normal;
  return std::bit_cast<float>(sign | (exponent == 0x7c00u ? special : finite));
}

// To nearest, ties to even.
template <typename Narrow>
Narrow RoundTo(float value);

template <>
[[gnu::always_inline]] inline BFloat16 RoundTo<BFloat16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return {static_cast<std::uint16_t>(is_nan ? 0x7fc0u : rounded)};
}

template <>
[[gnu::always_inline]] inline Float16 RoundTo<Float16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // Below 2^-14 the adder itself rounds to fp16's subnormal spacing.
  constexpr std::uint32_t kMagic = ((127u - 15u) + (23u - 10u) + 1u) << 23;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kMagic)) -
      kMagic;
  const std::uint32_t normal =
      (magnitude - ((127u - 15u) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const std::uint32_t finite = magnitude < (113u << 23) ? subnormal : normal;
  return {static_cast<std::uint16_t>(sign | (magnitude >= 0x477ff000u ? special : finite))};
}

}  // namespace ds
