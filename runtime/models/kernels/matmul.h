#pragma once

// Matrix products with the fastest LibTorch kernel for this machine.
//
// LibTorch multiplies fp32 matrices on the CPU with MKL, which uses AVX2 kernels on non-Intel
// processors. LibTorch's own copy of oneDNN has AVX-512 kernels for them, so products use
// oneDNN on such processors. Both sum in fp32; results differ by rounding only.
//
// LibTorch multiplies bf16 matrices with oneDNN. With AMX tiles that is fast; without them, on
// Intel processors, it is at most half as fast as fp32. There bf16 operands are upcast, which is
// lossless, and multiplied in fp32, tile by tile; the result is rounded once. fp16 operands take
// the same path on x86 processors without AVX512-FP16, where LibTorch multiplies them one element
// at a time.

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "runtime/parallel/tensor/group.h"

namespace ds::models {

// Computes out = beta * out + a · b. a [M, K], b [K, N], out [M, N] contiguous; beta is 0 or 1.
// `out` has the dtype of a and b, or is fp32 if they are 16-bit. Records no gradient.
void MatMulInto(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, float beta = 0.0F);

// Same as MatMulInto, always with the upcast path for 16-bit operands. Works on any processor.
void MatMulWidened(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, float beta);

enum class WeightLayout { kInOut, kOutIn };

// Returns x · W (+ bias), differentiable. x [..., in]; `weight` is W [in, out] or its transpose
// [out, in]; `bias` [out] may be undefined. The gradient of `weight` has the layout of `weight`. If
// the ranks of `add_up` shard the weight by its inputs, the result is the sum of their products;
// the bias is added once.
at::Tensor Affine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  WeightLayout layout, const tensor_parallel::TensorGroup& add_up = {});

struct AffineWeights {
  at::Tensor weight, bias;  // as in Affine
  WeightLayout layout = WeightLayout::kOutIn;
};

// Returns Affine of x for each of the weights; the ranks of `users` shard their outputs. The
// all-reduce of x's gradient over the ranks overlaps with the computation of the weights' gradients
// (Megatron-LM's asynchronous all-reduce). Results and gradients are bit-identical to Affine of
// users.Share(x), in the order of the weights. Collective: all ranks of `users` call it. Requires
// that autocast is off, because it would compute the sum in 16 bits.
std::vector<at::Tensor> SharedAffine(const at::Tensor& x, const std::vector<AffineWeights>& weights,
                                     const tensor_parallel::TensorGroup& users,
                                     std::string_view tag);

}  // namespace ds::models
