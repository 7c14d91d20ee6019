#pragma once

// CountQuantizedBytes: the size of quantized elements (zero/storage/block_quantization.h).

#include <cstdint>

#include "runtime/base/check.h"

namespace ds::zero {

inline constexpr std::int64_t kQuantizationBlock = 2048;

enum class QuantizedBits { k4 = 4, k8 = 8 };

// Returns the bytes of `count` elements with their scales. Requires a multiple of 8.
inline std::int64_t CountQuantizedBytes(std::int64_t count, QuantizedBits bits) {
  DS_CHECK(count % 8 == 0);
  const std::int64_t blocks = (count + kQuantizationBlock - 1) / kQuantizationBlock;
  return blocks * static_cast<std::int64_t>(sizeof(float)) + count * static_cast<int>(bits) / 8;
}

}  // namespace ds::zero
