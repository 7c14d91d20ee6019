#pragma once

// SaturatingProduct: for sizes from outside, of which any above so much means "all there is".

#include <cstdint>

namespace ds {

// Low enough that a few of them can be added up.
inline constexpr std::int64_t kSaturated = std::int64_t{1} << 60;

// Requires that neither is negative.
inline std::int64_t SaturatingProduct(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) || product > kSaturated ? kSaturated : product;
}

}  // namespace ds
