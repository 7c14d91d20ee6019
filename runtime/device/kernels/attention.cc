#include "runtime/device/kernels/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "runtime/device/autocast_scope.h"
#include "runtime/device/kernels/attention_block.h"
#include "runtime/device/kernels/first_derivative.h"
#include "runtime/device/kernels/flash_attention.h"
#include "runtime/plan/sequence/attention_tiles.h"

namespace ds::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::int64_t FirstKey(const AttentionRule& rule, TokenRange document, std::int64_t query) {
  return rule.window > 0 ? std::max(document.first, query - rule.window + 1) : document.first;
}

std::int64_t PieceOf(const AttentionRule& rule, BlockKernel kernel, TokenRange document) {
  // Terms within a piece are small, and fp32 scores keep their digits.
  if (kernel == BlockKernel::kTerms) return 64;
  if (kernel == BlockKernel::kByRule) return sequence_parallel::kPieceQueries;
  const bool is_narrow = rule.window > 0 && rule.window < document.count;
  return is_narrow ? std::clamp<std::int64_t>(rule.window, 64, 2 * sequence_parallel::kPieceQueries)
                   : document.count;
}

void AddBlocks(const AttentionRule& rule, BlockKernel kernel, TokenRange samples,
               TokenRange document, std::vector<QueryBlocks>* blocks) {
  const std::int64_t piece = PieceOf(rule, kernel, document);
  for (std::int64_t first = document.first; first < document.end(); first += piece) {
    const TokenRange queries{first, std::min(piece, document.end() - first)};
    const std::int64_t key = FirstKey(rule, document, first);
    QueryBlocks& block = blocks->emplace_back(QueryBlocks{samples, queries, {}});
    if (kernel != BlockKernel::kTerms || rule.window > 0) {
      block.keys = {{key, queries.end() - key}};
      continue;
    }
    block.keys = {queries};
    if (key < first) block.keys.push_back({key, first - key});
  }
}

// Runs the blocks of one call of Attend on the CPU's fused kernel or by operators, forward and
// backward.
class BlockedAttention : public torch::CustomClassHolder {
 public:
  BlockedAttention(AttentionRule rule, const at::Tensor& q)
      : rule_(std::move(rule)),
        kernel_(ChooseKernel(rule_, q)),
        blocks_(ListBlocks(rule_, kernel_, q.size(0), q.size(2))) {
    // The blocks are parts of documents.
    rule_.documents = nullptr;
    for (const QueryBlocks& block : blocks_) {
      keys_overlap_ |= block.keys.size() > 1 || block.keys.front() != block.queries;
    }
  }

  Mixed Forward(const Qkv& all);
  Qkv Backward(const at::Tensor& upstream, const Qkv& all, const Mixed& mixed);

 private:
  static BlockKernel ChooseKernel(const AttentionRule& rule, const at::Tensor& q) {
    if (!q.is_cpu() || rule.soft_cap != 0.0 || rule.factors) return BlockKernel::kByRule;
    return rule.key_terms.defined() ? BlockKernel::kTerms : BlockKernel::kWhole;
  }
  static at::Tensor Take(const at::Tensor& all, const QueryBlocks& block, TokenRange tokens) {
    return all.narrow(0, block.samples.first, block.samples.count)
        .narrow(2, tokens.first, tokens.count);
  }
  static Qkv TakeBlock(const Qkv& all, const QueryBlocks& block, TokenRange keys) {
    return {Take(all.q, block, block.queries), Take(all.k, block, keys), Take(all.v, block, keys)};
  }
  Mixed AttendTo(const Qkv& part, const QueryBlocks& block, TokenRange keys) {
    if (kernel_ == BlockKernel::kByRule) {
      return AttendByRule(part, {block.queries, keys, block.samples}, rule_);
    }
    return AttendFused(part, OptionsOf(part.q, block.queries, keys));
  }
  Qkv AttendBackward(const at::Tensor& upstream, const Qkv& part, const Mixed& mixed,
                     const QueryBlocks& block, TokenRange keys) {
    if (kernel_ == BlockKernel::kByRule) {
      return AttendByRuleBackward(upstream, part, mixed, {block.queries, keys, block.samples},
                                  rule_);
    }
    return AttendFusedBackward(upstream, part, mixed, OptionsOf(part.q, block.queries, keys));
  }
  FusedOptions OptionsOf(const at::Tensor& q, TokenRange queries, TokenRange keys);
  // Returns 0 where the window shows a key of the block to a query, else -infinity, [queries,
  // keys].
  at::Tensor HideInBlock(TokenRange queries, TokenRange keys, const at::TensorOptions& options);

  AttentionRule rule_;
  const BlockKernel kernel_;
  const std::vector<QueryBlocks> blocks_;
  bool keys_overlap_ = false;  // several queries' blocks have keys in common
  // By distance of the block's first query and key, queries and keys: most blocks have the same.
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, at::Tensor> hidden_;
};

at::Tensor BlockedAttention::HideInBlock(TokenRange queries, TokenRange keys,
                                         const at::TensorOptions& options) {
  at::Tensor& made = hidden_[{queries.first - keys.first, queries.count, keys.count}];
  if (made.defined()) return made;
  const auto along = [&](const TokenRange& range) {
    return at::arange(range.first, range.end(), options.dtype(at::kLong));
  };
  const at::Tensor of_queries = along(queries).unsqueeze(1), of_keys = along(keys);
  at::Tensor hidden = of_keys.gt(of_queries);
  if (rule_.window > 0) hidden = hidden.logical_or_(of_keys.le(of_queries - rule_.window));
  made = at::zeros({queries.count, keys.count}, options)
             .masked_fill_(hidden, -std::numeric_limits<double>::infinity());
  return made;
}

FusedOptions BlockedAttention::OptionsOf(const at::Tensor& q, TokenRange queries, TokenRange keys) {
  FusedOptions options{.scale = rule_.scale};
  const bool is_narrow = rule_.window > 0 && keys.first <= queries.end() - 1 - rule_.window;
  options.causal = queries == keys && !is_narrow;
  const bool is_earlier = keys.end() <= queries.first;
  if (rule_.key_terms.defined()) options.terms = RelativeTerms(rule_, queries, keys);
  if (options.causal || (is_earlier && !is_narrow)) return options;
  const at::Tensor hidden = HideInBlock(queries, keys, q.options().dtype(at::kFloat));
  options.terms =
      options.terms.defined() ? options.terms + hidden : hidden.unsqueeze(0).unsqueeze(0);
  return options;
}

Mixed BlockedAttention::Forward(const Qkv& all) {
  const std::int64_t samples = all.q.size(0), heads = all.q.size(1), tokens = all.q.size(2);
  Mixed result{at::empty({samples, tokens, heads, all.v.size(3)}, all.q.options()).transpose(1, 2),
               at::empty({samples, heads, tokens}, all.q.options().dtype(at::kFloat))};
  for (const QueryBlocks& block : blocks_) {
    Mixed mixed = AttendTo(TakeBlock(all, block, block.keys[0]), block, block.keys[0]);
    if (block.keys.size() > 1) mixed.values = mixed.values.to(at::kFloat);
    for (std::size_t i = 1; i < block.keys.size(); ++i) {
      Merge(AttendTo(TakeBlock(all, block, block.keys[i]), block, block.keys[i]), /*first=*/0,
            &mixed);
    }
    Take(result.values, block, block.queries).copy_(mixed.values);
    Take(result.log_sums, block, block.queries).copy_(mixed.log_sums);
  }
  hidden_.clear();
  return result;
}

Qkv BlockedAttention::Backward(const at::Tensor& upstream, const Qkv& all, const Mixed& mixed) {
  const auto sum_type = keys_overlap_ ? at::kFloat : all.k.scalar_type();
  Qkv sums{at::empty_like(all.q), at::zeros_like(all.k, all.k.options().dtype(sum_type)),
           at::zeros_like(all.v, all.v.options().dtype(sum_type))};
  for (const QueryBlocks& block : blocks_) {
    const Mixed rows{Take(mixed.values, block, block.queries),
                     Take(mixed.log_sums, block, block.queries)};
    at::Tensor of_queries;
    for (const TokenRange& keys : block.keys) {
      const Qkv part = AttendBackward(Take(upstream, block, block.queries),
                                      TakeBlock(all, block, keys), rows, block, keys);
      of_queries = of_queries.defined() ? of_queries.to(at::kFloat) + part.q : part.q;
      Take(sums.k, block, keys).add_(part.k);
      Take(sums.v, block, keys).add_(part.v);
    }
    Take(sums.q, block, block.queries).copy_(of_queries);
  }
  hidden_.clear();
  return {sums.q, sums.k.to(all.k.scalar_type()), sums.v.to(all.v.scalar_type())};
}

class AttendFunction : public torch::autograd::Function<AttendFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const c10::intrusive_ptr<BlockedAttention>& run) {
    const Mixed mixed = run->Forward({q, k, v});
    context->saved_data["run"] = c10::IValue::make_capsule(run);
    context->save_for_backward({q, k, v, mixed.values, mixed.log_sums});
    return mixed.values;
  }
  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    CheckIsFirstDerivative("attention");
    const auto capsule = context->saved_data["run"].toCapsule();
    const variable_list saved = context->get_saved_variables();
    auto [q, k, v] =
        static_cast<BlockedAttention*>(capsule.get())
            ->Backward(upstream[0], {saved[0], saved[1], saved[2]}, {saved[3], saved[4]});
    return {q, k, v, {}};
  }
};

at::Tensor AttendToAll(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       double scale) {
  return at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/std::nullopt, /*dropout_p=*/0.0,
                                          /*is_causal=*/true, scale,
                                          /*enable_gqa=*/q.size(1) != k.size(1));
}

void CheckShapes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const AttentionRule& rule) {
  TORCH_CHECK(k.size(2) == q.size(2), "attention over full samples has ", q.size(2),
              " queries and ", k.size(2), " keys");
  TORCH_CHECK(v.size(3) <= k.size(3), "attention with values of width ", v.size(3),
              ", wider than keys of ", k.size(3));
  if (rule.documents) {
    const at::Tensor& numbers = rule.documents->numbers();
    TORCH_CHECK(numbers.size(0) == q.size(0) && numbers.size(1) == q.size(2), "attention over ",
                q.size(0), " samples of ", q.size(2), " tokens has documents of ", numbers.sizes());
  }
  if (rule.key_terms.defined()) {
    const std::int64_t heads = rule.key_terms.size(0);
    TORCH_CHECK((heads == q.size(1) || heads == 1) && rule.key_terms.size(1) == q.size(2),
                "attention of ", q.size(1), " heads over ", q.size(2), " tokens has terms of ",
                rule.key_terms.sizes());
  }
}

}  // namespace

std::vector<QueryBlocks> ListBlocks(const AttentionRule& rule, BlockKernel kernel,
                                    std::int64_t samples, std::int64_t tokens) {
  std::vector<QueryBlocks> blocks;
  if (!rule.documents) {
    AddBlocks(rule, kernel, {0, samples}, {0, tokens}, &blocks);
    return blocks;
  }
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    for (const TokenRange& document : rule.documents->Of(sample)) {
      AddBlocks(rule, kernel, {sample, 1}, document, &blocks);
    }
  }
  return blocks;
}

at::Tensor Attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& given,
                  const AttentionRule& rule) {
  const at::Tensor q = precision::AutocastOperand(queries), k = precision::AutocastOperand(keys),
                   v = precision::AutocastOperand(given);
  CheckShapes(q, k, v, rule);
  const at::Tensor values = PadColumns(v, q.size(3));
  at::Tensor mixed;
  if (rule.IsScaleAlone(q.size(2))) {
    mixed = AttendToAll(q, k, values, rule.scale);
  } else if (TakesFlashAttention(q, k, values, rule)) {
    mixed = FlashAttention(q, k, values, rule);
  } else {
    mixed = AttendFunction::apply(q, k, values, c10::make_intrusive<BlockedAttention>(rule, q));
  }
  return TakeColumns(mixed, v.size(3));
}

}  // namespace ds::kernels
