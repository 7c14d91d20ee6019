#pragma once

// SaturatingProduct multiplies sizes from outside. Results above kSaturated are capped to it and
// mean "unlimited".

#include <cstdint>

namespace ds {

// Low enough that several of these can be added without overflow.
inline constexpr std::int64_t kSaturated = std::int64_t{1} << 60;

// Requires that both factors are non-negative.
inline std::int64_t SaturatingProduct(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) || product > kSaturated ? kSaturated : product;
}

}  // namespace ds
