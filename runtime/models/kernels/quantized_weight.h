#pragma once

// Weights of few bits an element: made, and made use of in a product. What they are says
// spec/quantized_layout.h; the numbers are those of bitsandbytes, whose int8 products also round
// their inputs, which these do not.
//
// Threads: safe.

#include <ATen/core/Tensor.h>

#include "runtime/plan/model/quantized_layout.h"

namespace ds::models {

// Quantises a weight [rows, columns] of any floating dtype, on the CPU: [layout.bytes()] kByte.
at::Tensor QuantizeWeight(const at::Tensor& weight, const QuantizedLayout& layout);

// Gives back what such bytes stand for: [rows, columns] of `dtype`, fp32, bf16 or fp16, on their
// device.
at::Tensor DequantizeWeight(const at::Tensor& bytes, const QuantizedLayout& layout,
                            at::ScalarType dtype);
// The same by LibTorch's operators: what other devices than the CPU use, and the reference in
// tests.
at::Tensor DequantizeWeightByOperators(const at::Tensor& bytes, const QuantizedLayout& layout,
                                       at::ScalarType dtype);

// x · Wᵀ (+ bias), W being what `bytes` stand for, in x's dtype; it is there while it is multiplied
// only, in the forward pass and again in the backward pass. Differentiable in x and bias. x
// [..., columns]; the result is [..., rows].
at::Tensor QuantizedAffine(const at::Tensor& x, const at::Tensor& bytes,
                           const QuantizedLayout& layout, const at::Tensor& bias);

}  // namespace ds::models
