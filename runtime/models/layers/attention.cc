#include "runtime/models/layers/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include "runtime/device/kernels/attention_block.h"

namespace ds::models {
namespace {

at::Tensor AttendByOperators(const at::Tensor& q, at::Tensor k, at::Tensor v,
                             const CachedAttentionOptions& options) {
  if (const std::int64_t shared_by = q.size(1) / k.size(1); shared_by > 1) {
    k = k.repeat_interleave(shared_by, /*dim=*/1);
    v = v.repeat_interleave(shared_by, /*dim=*/1);
  }
  const at::Tensor scores = q.matmul(k.transpose(2, 3)) * options.scale;
  const at::Tensor capped = (scores / options.soft_cap).tanh() * options.soft_cap + options.bias;
  return capped.softmax(-1, at::kFloat).to(q.scalar_type()).matmul(v);
}

}  // namespace

at::Tensor CachedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const CachedAttentionOptions& options) {
  if (options.soft_cap > 0.0) return AttendByOperators(q, k, v, options);
  // LibTorch's fused kernels require values as wide as keys, and would keep every weight. For a
  // single token the weights are fewer than the elements that pad the values.
  const at::Tensor values = q.size(2) > 1 ? kernels::PadColumns(v, q.size(3)) : v;
  const at::Tensor mixed =
      at::scaled_dot_product_attention(q, k, values, options.bias, /*dropout_p=*/0.0,
                                       /*is_causal=*/false, options.scale,
                                       /*enable_gqa=*/q.size(1) != k.size(1));
  return kernels::TakeColumns(mixed, v.size(3));
}

}  // namespace ds::models
