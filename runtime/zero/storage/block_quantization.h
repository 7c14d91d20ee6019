#pragma once

// Symmetric blockwise quantization, for ZeRO++'s communication (arXiv 2306.10209).
//
// As in DeepSpeed's kernels, per block of at most kQuantizationBlock elements with largest
// magnitude m: k = 2^bits / (2 m), and q = round(k x), to even on ties, clamped to [-2^(bits-1),
// 2^(bits-1) - 1]. Dequantization gives q times the fp32 number 1/k. The error is at most half a
// step, m / 2^bits, except next to +m, where it is up to a full step. A non-finite block is
// dequantized to non-finite values; a block whose largest magnitude is below 1e-30 becomes zeros.
//
// Thread-safe. Works on any device.

#include <ATen/core/Tensor.h>

#include "runtime/plan/zero/quantized_bytes.h"

namespace ds::zero {

// The position of elements among `count` elements with bytes that are stored together. They start
// at the start of a block and end at the end of a block or of the last one.
struct QuantizedRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Writes `values` (flat, of any floating-point dtype) to `bytes` (kByte, of length
// CountQuantizedBytes): first the scales of the blocks, then the elements. If a byte holds two
// elements, the first is in its lower half.
void Quantize(const at::Tensor& values, QuantizedBits bits, const at::Tensor& bytes);
// Same for some of the elements; writes only their bytes.
void Quantize(const at::Tensor& values, QuantizedBits bits, const at::Tensor& bytes,
              const QuantizedRange& range);

// Overwrites `values` with the dequantized `bytes`, or with the elements at `range`.
void Dequantize(const at::Tensor& bytes, QuantizedBits bits, const at::Tensor& values);
void Dequantize(const at::Tensor& bytes, QuantizedBits bits, const at::Tensor& values,
                const QuantizedRange& range);

}  // namespace ds::zero
