#pragma once

// GroupedProduct: rows that lie sorted by group, each times the matrix of its group, as one product
// (LibTorch's _grouped_mm), in place of as many as there are groups. On a GPU, where a small
// product does not fill the device; on a CPU LibTorch loops over them.
//
// N rows of `in` values, E matrices [out, in] that lie in one storage, each as far behind the one
// before: so ZeRO's flat buffers have those of experts. Threads: that of the pass.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace ds::models {

// The view [E, out, in] of such matrices; nothing where they lie otherwise, or one is undefined.
std::optional<at::Tensor> StackMatrices(const std::vector<at::Tensor>& matrices);

// Tells whether _grouped_mm takes these operands where they are: bf16 on a GPU, rows and columns of
// 16 bytes, StackMatrices, and no autocast that would copy them.
bool GroupsProducts(const at::Tensor& rows, const std::vector<at::Tensor>& matrices);

// [N, in] -> [N, out], the first counts[0] rows by the first matrix, and so on. Differentiable; the
// gradients of matrices are put where they are collected (autograd/put_gradient.h), those without
// rows as zeros. Requires StackMatrices, also in the backward pass, and counts that add up to N.
at::Tensor GroupedProduct(const at::Tensor& rows, const std::vector<at::Tensor>& matrices,
                          const std::vector<std::int64_t>& counts);

}  // namespace ds::models
