#pragma once

// QuantizedLayout: the bytes that stand for a frozen weight whose elements have few bits, as QLoRA
// has them (https://arxiv.org/abs/2305.14314) and bitsandbytes computes them. Pure.
//
//   nf4         a code of 4 bits an element, of 16 values that a normal distribution has as often,
//               and a fp32 scale for every 64 elements: 4.5 bits an element
//   nf4-double  the same, but scales are codes of 8 bits about their mean, of which 256 have one
//               fp32 scale: 4.13 bits an element
//   int8        8 bits an element, and a fp32 scale for every row
//
// The bytes are the codes of all elements, row by row, two to a byte where they have 4 bits (the
// first in its upper half); then the scales of blocks or rows; then, of nf4-double, the scales of
// scales and their mean.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace ds::models {

enum class BaseFormat { kNf4, kNf4Double, kInt8 };

// Those are "nf4", "nf4-double" and "int8".
StatusOr<BaseFormat> ParseBaseFormat(std::string_view name);

inline constexpr std::int64_t kNf4Block = 64;      // elements of one scale
inline constexpr std::int64_t kScalesBlock = 256;  // scales of one scale of scales

struct QuantizedLayout {
  BaseFormat format = BaseFormat::kNf4;
  std::int64_t rows = 0, columns = 0;  // of the weight, outputs by inputs

  std::int64_t numel() const { return rows * columns; }
  // Counts the scales of elements, and those of scales.
  std::int64_t scales() const;
  std::int64_t scales_of_scales() const;
  std::int64_t code_bytes() const;
  std::int64_t bytes() const;
};

}  // namespace ds::models
