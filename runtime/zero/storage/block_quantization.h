#pragma once

// Symmetric quantisation by blocks, for what ZeRO++ sends between ranks (arXiv 2306.10209).
//
// Per block of at most kQuantizationBlock elements with the largest magnitude m, as in DeepSpeed's
// kernels: k = 2^bits / (2 m), q = round(k x), to even where it lies between two, held within
// [-2^(bits-1), 2^(bits-1) - 1]; what comes back is q times the fp32 number 1/k. So an element is
// off by at most half a step, m / 2^bits, but one next to +m by a whole step. A block that is not
// finite comes back not finite; one whose largest magnitude is below 1e-30 comes back as zeros.
//
// Threads: safe. Any device.

#include <ATen/core/Tensor.h>

#include "runtime/plan/zero/quantized_bytes.h"

namespace ds::zero {

// QuantizedPlace says where elements are among the `count` whose bytes lie together. They begin at
// a block's beginning and end at a block's end, or at the last one's.
struct QuantizedPlace {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Writes `values` (flat, of any floating-point dtype) to `bytes` (kByte, as long as
// CountQuantizedBytes says): the scales of the blocks, then the elements, where there are two in a
// byte the first in its lower half.
void Quantize(const at::Tensor& values, QuantizedBits bits, const at::Tensor& bytes);
// The same of some of the elements, whose bytes it writes, and no others.
void Quantize(const at::Tensor& values, QuantizedBits bits, const at::Tensor& bytes,
              const QuantizedPlace& place);

// Overwrites `values` with what `bytes` holds, or with those of it that are at `place`.
void Dequantize(const at::Tensor& bytes, QuantizedBits bits, const at::Tensor& values);
void Dequantize(const at::Tensor& bytes, QuantizedBits bits, const at::Tensor& values,
                const QuantizedPlace& place);

}  // namespace ds::zero
