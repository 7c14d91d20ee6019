#include "runtime/models/layers/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <limits>

namespace ds::models {
namespace {

// Attention with separate operators, which materialises every intermediate result. LibTorch's fused
// kernels draw dropout from a generator, and its numbers depend on the shape of the call.
at::Tensor AttendByOperators(const at::Tensor& q, at::Tensor k, at::Tensor v,
                             const AttentionOptions& options) {
  if (const std::int64_t shared_by = q.size(1) / k.size(1); shared_by > 1) {
    k = k.repeat_interleave(shared_by, /*dim=*/1);
    v = v.repeat_interleave(shared_by, /*dim=*/1);
  }
  at::Tensor scores = q.matmul(k.transpose(2, 3)) * options.scale;
  if (options.soft_cap > 0.0) scores = (scores / options.soft_cap).tanh() * options.soft_cap;
  if (options.bias.defined()) {
    scores = scores + options.bias;
  } else {
    const at::Tensor later =
        at::ones({q.size(2), k.size(2)}, q.options().dtype(at::kBool)).triu_(/*diagonal=*/1);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  }
  const at::Tensor weights = scores.softmax(-1, at::kFloat).to(q.scalar_type());
  return Dropout(weights, options.dropout).matmul(v);
}

// [B, heads, S, head width]
at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const AttentionOptions& options) {
  if (options.dropout.probability > 0.0 || options.soft_cap > 0.0) {
    return AttendByOperators(q, k, v, options);
  }
  const bool shared_heads = q.size(1) != k.size(1);
  const std::optional<at::Tensor> bias =
      options.bias.defined() ? std::optional(options.bias) : std::nullopt;
  // LibTorch's fused kernels require values as wide as keys, and would keep every weight. For a
  // single token the weights are fewer than the elements that pad the values.
  const std::int64_t missing = q.size(2) > 1 ? q.size(3) - v.size(3) : 0;
  const at::Tensor values = missing > 0 ? at::constant_pad_nd(v, {0, missing}) : v;
  const at::Tensor mixed =
      at::scaled_dot_product_attention(q, k, values, bias, /*dropout_p=*/0.0,
                                       /*is_causal=*/!bias, options.scale, shared_heads);
  return missing > 0 ? mixed.narrow(3, 0, v.size(3)) : mixed;
}

}  // namespace

at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionOptions& options) {
  const activation::RecomputedForward part = [options](activation::Tensors qkv) {
    return activation::Tensors{Attend(qkv[0], qkv[1], qkv[2], options)};
  };
  const at::Tensor mixed = options.recompute
                               ? activation::Recompute(part, {q, k, v}, *options.recompute)[0]
                               : Attend(q, k, v, options);
  return mixed.transpose(1, 2).reshape({q.size(0), q.size(2), q.size(1) * v.size(3)});
}

}  // namespace ds::models
