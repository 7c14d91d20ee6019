#pragma once

// GroupedProduct: multiplies rows, sorted by group, each with the matrix of its group, in one call
// (LibTorch's _grouped_mm) instead of one call per group. For GPUs, where a small product does not
// fill the device; on a CPU LibTorch loops over the groups.
//
// Operands: N rows of `in` values, and E matrices [out, in] in one storage at equal distances, as
// experts are laid out in ZeRO's flat buffers. Threads: use it on the thread of the pass.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace ds::models {

// Returns the view [E, out, in] of such matrices. Returns nothing if they are laid out differently
// or if one is undefined.
std::optional<at::Tensor> StackMatrices(const std::vector<at::Tensor>& matrices);

// Returns whether _grouped_mm can use these operands in place: bf16 on a GPU, rows and columns that
// are multiples of 16 bytes, StackMatrices succeeds, and no autocast, which would copy them.
bool GroupsProducts(const at::Tensor& rows, const std::vector<at::Tensor>& matrices);

// [N, in] -> [N, out]: multiplies the first counts[0] rows with the first matrix, and so on.
// Differentiable. Gradients of the matrices are written where they are collected
// (autograd/put_gradient.h); a matrix without rows gets zeros. Requires that StackMatrices
// succeeds, in the backward pass, too, and that the counts add up to N.
at::Tensor GroupedProduct(const at::Tensor& rows, const std::vector<at::Tensor>& matrices,
                          const std::vector<std::int64_t>& counts);

}  // namespace ds::models
