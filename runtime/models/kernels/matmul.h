#pragma once

// Matrix products through the fastest kernel that LibTorch has for this machine.
//
// LibTorch multiplies fp32 matrices on the CPU with MKL, which uses AVX2 kernels on processors that
// are not Intel's. LibTorch's own copy of oneDNN has AVX-512 kernels for them all; on such
// processors products go there. Both sum in fp32; results differ by rounding only.
//
// It multiplies bf16 matrices with oneDNN: by AMX tiles where there are any, but otherwise, on
// Intel's processors, at half the speed of fp32 products or less. There bf16 operands are widened,
// which loses nothing, and multiplied in fp32, tile by tile; the result is rounded once. So are
// fp16 operands on x86 processors without AVX512-FP16, where LibTorch multiplies them one by one.

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "runtime/parallel/tensor/group.h"

namespace ds::models {

// out = beta * out + a · b. a [M, K], b [K, N], out [M, N] contiguous; beta is 0 or 1. `out` has
// the dtype of a and b, or is fp32 where they are 16-bit. Records no gradient.
void MatMulInto(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, float beta = 0.0F);

// The way of MatMulInto for 16-bit operands on processors that multiply fp32 faster, for any of
// them.
void MatMulWidened(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, float beta);

// An operand of a product as autocast wants it; itself where autocast is off. Differentiable. The
// functions below ask themselves.
at::Tensor AutocastOperand(const at::Tensor& operand);

enum class WeightLayout { kInOut, kOutIn };

// x · W (+ bias), differentiable. x [..., in]; `weight` is W [in, out] or its transpose [out, in];
// `bias` [out] may be undefined. The gradient of `weight` has its layout. Where the ranks of
// `add_up` have the weight between them, cut by its inputs, the result is the sum of their
// products, to which the bias is added once.
at::Tensor Affine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  WeightLayout layout, const tensor_parallel::Group& add_up = {});

struct AffineWeights {
  at::Tensor weight, bias;  // Affine's
  WeightLayout layout = WeightLayout::kOutIn;
};

// Affine of x by each of the weights, whose outputs several ranks, `users`, have between them. The
// sum over the ranks of what flows back into x goes on while the gradients of the weights are
// computed (Megatron-LM's asynchronous all-reduce). Results and gradients have the bits of those of
// Affine of users.Share(x), in the order of the weights. Collective. Requires that autocast is off,
// which would have the sum in 16 bits.
std::vector<at::Tensor> SharedAffine(const at::Tensor& x, const std::vector<AffineWeights>& weights,
                                     const tensor_parallel::Group& users, std::string_view tag);

}  // namespace ds::models
