#include "runtime/device/kernels/flash_attention.h"

#include <ATen/SDPBackend.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <optional>

#include "runtime/device/kernels/attention_block.h"
#include "runtime/device/kernels/first_derivative.h"

namespace ds::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class FlashRule : public torch::CustomClassHolder {
 public:
  explicit FlashRule(AttentionRule given) : rule(std::move(given)) {}

  // [B, heads, S, width] -> [B, S, heads, width], or rows of all samples with documents.
  at::Tensor Rows(const at::Tensor& x) const {
    const at::Tensor rows = x.transpose(1, 2);
    return rule.documents ? rows.flatten(0, 1) : rows;
  }
  at::Tensor Heads(const at::Tensor& rows, const at::Tensor& like) const {
    const at::Tensor samples =
        rule.documents ? rows.unflatten(0, {like.size(0), like.size(2)}) : rows;
    return samples.transpose(1, 2);
  }
  // Undefined without documents.
  at::Tensor starts() const { return rule.documents ? rule.documents->starts() : at::Tensor(); }
  std::int64_t longest(const at::Tensor& q) const {
    return rule.documents ? rule.documents->longest() : q.size(2);
  }
  std::optional<std::int64_t> left() const {
    return rule.window > 0 ? std::optional(rule.window - 1) : std::nullopt;
  }
  std::optional<std::int64_t> right() const {
    return rule.window > 0 ? std::optional<std::int64_t>(0) : std::nullopt;
  }

  const AttentionRule rule;
};

class FlashFunction : public torch::autograd::Function<FlashFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const c10::intrusive_ptr<FlashRule>& rule) {
    const at::Tensor starts = rule->starts();
    const auto optional_starts = starts.defined() ? std::optional(starts) : std::nullopt;
    // The kernel's result has the strides of the queries.
    const at::Tensor q_rows = rule->Rows(q).contiguous(), k_rows = rule->Rows(k),
                     v_rows = rule->Rows(v);
    const auto [mixed, log_sums, random_state, unused, debug_mask] = at::_flash_attention_forward(
        q_rows, k_rows, v_rows, optional_starts, optional_starts, rule->longest(q),
        rule->longest(q), /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false,
        rule->rule.scale, rule->left(), rule->right());
    context->saved_data["rule"] = c10::IValue::make_capsule(rule);
    context->save_for_backward({q, k, v, mixed, log_sums, random_state, unused});
    return rule->Heads(mixed, q);
  }
  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    CheckIsFirstDerivative("attention");
    const auto capsule = context->saved_data["rule"].toCapsule();
    const auto& rule = *static_cast<FlashRule*>(capsule.get());
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], starts = rule.starts();
    const auto [of_q, of_k, of_v] = at::_flash_attention_backward(
        rule.Rows(upstream[0]).contiguous(), rule.Rows(q), rule.Rows(saved[1]), rule.Rows(saved[2]),
        saved[3], saved[4], starts, starts, rule.longest(q), rule.longest(q),
        /*dropout_p=*/0.0, /*is_causal=*/true, saved[5], saved[6], rule.rule.scale, rule.left(),
        rule.right());
    return {rule.Heads(of_q, q), rule.Heads(of_k, saved[1]), rule.Heads(of_v, saved[2]), {}};
  }
};

}  // namespace

bool TakesFlashAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionRule& rule) {
  const bool is_narrow = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  if (!q.is_cuda() || !is_narrow || q.size(3) > 256) return false;
  if (rule.soft_cap != 0.0 || rule.key_terms.defined() || rule.factors) return false;
  // LibTorch knows which kernels the GPU has.
  const std::int64_t choice =
      at::_fused_sdp_choice(q, k, v, /*attn_mask=*/std::nullopt, /*dropout_p=*/0.0,
                            /*is_causal=*/true, rule.scale, /*enable_gqa=*/q.size(1) != k.size(1));
  return choice == static_cast<std::int64_t>(at::SDPBackend::flash_attention);
}

at::Tensor FlashAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionRule& rule) {
  // The kernels take heads of multiples of 8.
  const std::int64_t width = (q.size(3) + 7) / 8 * 8;
  const at::Tensor mixed =
      FlashFunction::apply(PadColumns(q, width), PadColumns(k, width), PadColumns(v, width),
                           c10::make_intrusive<FlashRule>(rule));
  return TakeColumns(mixed, q.size(3));
}

}  // namespace ds::kernels
