#pragma once

// CausalAttention: scaled dot-product attention with a causal mask or a bias.

#include <ATen/core/Tensor.h>

#include <optional>

#include "runtime/autograd/recompute.h"
#include "runtime/models/kernels/dropout.h"

namespace ds::models {

struct AttentionOptions {
  double scale = 1.0;
  // Added to the scaled scores, [B or 1, heads or 1, S, S] in the queries' dtype: -infinity for
  // masked positions, including the later ones. Undefined: the plain causal mask.
  at::Tensor bias = {};
  double soft_cap = 0.0;  // c in c tanh(score / c), before the bias; 0: none
  // If set, keeps only the inputs and recomputes the attention in the backward pass.
  std::optional<activation::RecomputeOptions> recompute = {};
  DropoutDraw dropout = {};  // of the attention weights
};

// Attention of [B, heads, S, head width] queries over keys and values. Keys and values may have
// fewer heads (each is shared by a group of query heads), and values another width. Returns [B, S,
// heads * value width]. Uses LibTorch's fused kernels unless there is dropout or a soft cap, which
// they do not support.
at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionOptions& options);

}  // namespace ds::models
