#pragma once

// CachedAttention: attention of a few new tokens over all cached ones. Attention over full samples
// is kernels::Attend.

#include <ATen/core/Tensor.h>

namespace ds::models {

struct CachedAttentionOptions {
  double scale = 1.0;
  // Added to the scaled scores, [B or 1, heads or 1, S, keys] in the queries' dtype: -infinity for
  // masked positions.
  at::Tensor bias;
  double soft_cap = 0.0;  // c in c tanh(score / c), before the bias; 0: none
};

// Attention of [B, heads, S, head width] queries over keys and values. Keys and values may have
// fewer heads (each is shared by a group of query heads), and values another width. Returns [B,
// heads, S, value width]. Uses LibTorch's fused kernels unless there is a soft cap, which they do
// not support.
at::Tensor CachedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const CachedAttentionOptions& options);

}  // namespace ds::models
