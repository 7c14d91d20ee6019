#include "runtime/models/layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "runtime/activation/recompute.h"
#include "runtime/gradients/put_gradient.h"
#include "runtime/models/block.h"
#include "runtime/models/matmul.h"
#include "runtime/models/rms_norm.h"

namespace ds::models {

Linear::Linear(Shape shape, const at::TensorOptions& options)
    : weight_(
          register_parameter("weight", UnmaterialisedParameter({shape.out, shape.in}, options))) {
  if (shape.bias) bias_ = register_parameter("bias", UnmaterialisedParameter({shape.out}, options));
}

at::Tensor Linear::forward(const at::Tensor& x) const {
  return Affine(x, weight_, bias_, WeightLayout::kOutIn);
}

Conv1d::Conv1d(std::int64_t in, std::int64_t out, const at::TensorOptions& options)
    : weight_(register_parameter("weight", UnmaterialisedParameter({in, out}, options))),
      bias_(register_parameter("bias", UnmaterialisedParameter({out}, options))) {}

at::Tensor Conv1d::forward(const at::Tensor& x) const {
  return Affine(x, weight_, bias_, WeightLayout::kInOut);
}

Embedding::Embedding(std::int64_t rows, std::int64_t width, const at::TensorOptions& options)
    : weight_(register_parameter("weight", UnmaterialisedParameter({rows, width}, options))) {}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A table as large as the vocabulary is neither made for the gradient of a batch's few rows nor
// added to that of a tied head.
class LookUpFunction : public torch::autograd::Function<LookUpFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& table,
                            const at::Tensor& ids) {
    context->save_for_backward({table, ids});
    return at::embedding(table, ids);
  }

  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &table = saved[0], &ids = saved[1];
    const auto add_rows = [&](at::Tensor& place, float beta) {
      if (beta == 0.0F) place.zero_();
      place.index_add_(0, ids.flatten(), upstream[0].reshape({-1, table.size(1)}));
    };
    // Elsewhere rows are added in no fixed order, and in 16 bits each addition would round.
    const bool adds_well = table.is_cpu() && table.scalar_type() == at::kFloat;
    if (adds_well && gradients::PutGradient(table, add_rows)) return variable_list(2);
    return {at::embedding_dense_backward(upstream[0], ids, table.size(0), /*padding_idx=*/-1,
                                         /*scale_grad_by_freq=*/false),
            {}};
  }
};

}  // namespace

at::Tensor LookUp(const at::Tensor& table, const at::Tensor& ids) {
  return LookUpFunction::apply(table, ids);
}

at::Tensor Embedding::forward(const at::Tensor& ids) const { return LookUp(weight_, ids); }

LayerNorm::LayerNorm(std::int64_t width, double epsilon, const at::TensorOptions& options)
    : weight_(register_parameter("weight", UnmaterialisedParameter({width}, options))),
      bias_(register_parameter("bias", UnmaterialisedParameter({width}, options))),
      epsilon_(epsilon) {}

at::Tensor LayerNorm::forward(const at::Tensor& x) const {
  return at::layer_norm(x, weight_.sizes(), weight_, bias_, epsilon_);
}

RmsNorm::RmsNorm(std::int64_t width, double epsilon, const at::TensorOptions& options)
    : weight_(register_parameter("weight", UnmaterialisedParameter({width}, options))),
      epsilon_(epsilon) {}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  return NormaliseByRms(x, weight_, epsilon_);
}

namespace {

// By operators of which each result is there: LibTorch's fused kernels draw what they drop from a
// generator, whose numbers depend on the shape of the call.
at::Tensor AttentionWithDropout(const at::Tensor& q, at::Tensor k, at::Tensor v,
                                const AttentionOptions& options) {
  if (const std::int64_t shared_by = q.size(1) / k.size(1); shared_by > 1) {
    k = k.repeat_interleave(shared_by, /*dim=*/1);
    v = v.repeat_interleave(shared_by, /*dim=*/1);
  }
  const at::Tensor later =
      at::ones({q.size(2), k.size(2)}, q.options().dtype(at::kBool)).triu_(/*diagonal=*/1);
  const at::Tensor scores = (q.matmul(k.transpose(2, 3)) * options.scale)
                                .masked_fill(later, -std::numeric_limits<double>::infinity());
  const at::Tensor weights = scores.softmax(-1, at::kFloat).to(q.scalar_type());
  return Dropout(weights, options.dropout).matmul(v);
}

// [B, heads, S, head width]
at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const AttentionOptions& options) {
  if (options.dropout.probability > 0.0) return AttentionWithDropout(q, k, v, options);
  const bool shared_heads = q.size(1) != k.size(1);
  return at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                          /*is_causal=*/true, options.scale, shared_heads);
}

}  // namespace

at::Tensor CausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionOptions& options) {
  const activation::ForwardPart part = [options](activation::Tensors qkv) {
    return activation::Tensors{Attend(qkv[0], qkv[1], qkv[2], options)};
  };
  const at::Tensor mixed = options.recompute
                               ? activation::Recompute(part, {q, k, v}, *options.recompute)[0]
                               : Attend(q, k, v, options);
  return mixed.transpose(1, 2).reshape({q.size(0), q.size(2), q.size(1) * q.size(3)});
}

}  // namespace ds::models
