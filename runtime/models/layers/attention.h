#pragma once

// Causal attention.

#include <ATen/core/Tensor.h>

#include <optional>

#include "runtime/autograd/recompute.h"
#include "runtime/models/kernels/dropout.h"

namespace ds::models {

struct AttentionOptions {
  double scale = 1.0;
  // Added to the scaled scores, [B or 1, heads or 1, S, S] of the queries' dtype: -infinity where a
  // token is not seen, the later ones included. Undefined: each token sees all up to itself.
  at::Tensor bias = {};
  double soft_cap = 0.0;  // c in c tanh(score / c), before the bias; 0: none
  // Present: keeps what it was given only, and is computed again in the backward pass.
  std::optional<activation::RecomputeOptions> recompute = {};
  DropoutDraw dropout = {};  // of the weights
};

// Attention of [B, heads, S, head width] queries over keys and values that may have fewer heads
// (each is shared by a group of query heads) and values of another width; returns [B, S, heads *
// width of a value]. By LibTorch's
// fused kernels, unless there is dropout or a soft cap, which those have not.
at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionOptions& options);

}  // namespace ds::models
