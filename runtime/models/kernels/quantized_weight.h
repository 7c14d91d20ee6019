#pragma once

// Quantises weights to a few bits per element, and uses them in products. plan/model/
// quantized_layout.h defines the layout. The values are those of bitsandbytes, except that its int8
// products also round their inputs; these do not.
//
// Threads: thread-safe.

#include <ATen/core/Tensor.h>

#include "runtime/plan/model/quantized_layout.h"

namespace ds::models {

// Quantises a weight [rows, columns] of any floating dtype on the CPU. Returns [layout.bytes()]
// kByte.
at::Tensor QuantizeWeight(const at::Tensor& weight, const QuantizedLayout& layout);

// Returns the weight that the bytes represent: [rows, columns] of `dtype` (fp32, bf16 or fp16), on
// the device of `bytes`.
at::Tensor DequantizeWeight(const at::Tensor& bytes, const QuantizedLayout& layout,
                            at::ScalarType dtype);
// Same as DequantizeWeight, with LibTorch operators. Used on devices other than the CPU, and as the
// reference in tests.
at::Tensor DequantizeWeightByOperators(const at::Tensor& bytes, const QuantizedLayout& layout,
                                       at::ScalarType dtype);

// Returns x · Wᵀ (+ bias), where W is the dequantised weight in x's dtype. W exists only during the
// product, and is dequantised again in the backward pass. Differentiable in x and bias. x [...,
// columns]; the result is [..., rows].
at::Tensor QuantizedAffine(const at::Tensor& x, const at::Tensor& bytes,
                           const QuantizedLayout& layout, const at::Tensor& bias);

}  // namespace ds::models
