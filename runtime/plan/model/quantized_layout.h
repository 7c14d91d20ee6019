#pragma once

// QuantizedLayout: the bytes of a frozen weight that is quantized to a few bits per element, as in
// QLoRA (https://arxiv.org/abs/2305.14314) and as bitsandbytes computes them. Pure.
//
//   nf4         4-bit codes of 16 values that are equally frequent in a normal distribution, and a
//               fp32 scale per 64 elements: 4.5 bits per element
//   nf4-double  like nf4, but scales are 8-bit codes about their mean, with one fp32 scale per 256
//               codes: 4.13 bits per element
//   int8        8 bits per element, and a fp32 scale per row
//
// The bytes are the codes of all elements, row by row; two 4-bit codes share a byte, the first in
// its upper half. Then follow the scales of blocks or rows, and for nf4-double the scales of scales
// and their mean.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace ds::models {

enum class BaseFormat { kNf4, kNf4Double, kInt8 };

// Parses "nf4", "nf4-double" or "int8".
StatusOr<BaseFormat> ParseBaseFormat(std::string_view name);

inline constexpr std::int64_t kNf4Block = 64;      // elements per scale
inline constexpr std::int64_t kScalesBlock = 256;  // scales per scale of scales

struct QuantizedLayout {
  BaseFormat format = BaseFormat::kNf4;
  std::int64_t rows = 0, columns = 0;  // of the weight, outputs by inputs

  std::int64_t numel() const { return rows * columns; }
  // Count the scales of elements, and the scales of scales.
  std::int64_t scales() const;
  std::int64_t scales_of_scales() const;
  std::int64_t code_bytes() const;
  std::int64_t bytes() const;
};

}  // namespace ds::models
