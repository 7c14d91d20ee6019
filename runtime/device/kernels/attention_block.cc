#include "runtime/device/kernels/attention_block.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "runtime/plan/sequence/attention_tiles.h"

namespace ds::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Makes log-sums finite: a score of -infinity minus a log-sum of -infinity would be NaN.
at::Tensor AboveInfinity(const at::Tensor& log_sums) {
  return log_sums.clamp_min(std::numeric_limits<float>::lowest());
}

// Computes products in fp32 under torch_autocast, too. The backward pass, without autocast,
// recomputes the scores and expects the sums of the forward pass.
class WithoutAutocast {
  const c10::impl::ExcludeDispatchKeyGuard guard_{c10::autocast_dispatch_keyset};
};

// Some of the queries of a block, in fp32, over all of its keys.
class Tile {
 public:
  Tile(const at::Tensor& q, const at::Tensor& k, const BlockRanges& ranges,
       const AttentionRule& rule)
      : heads_{q.size(0), k.size(1), q.size(1) / k.size(1) * q.size(2)},
        shape_{q.size(0), q.size(1), q.size(2), k.size(2)},
        q_(OfKeyHeads(q)),
        k_(k),
        rule_(rule) {
    scores_ = q_.matmul(k.transpose(2, 3)).mul_(rule.scale).view(shape_);
    if (rule.soft_cap > 0.0) {
      bent_ = scores_.div_(rule.soft_cap).tanh_();
      scores_ = bent_ * rule.soft_cap;
    }
    if (rule.key_terms.defined()) scores_.add_(RelativeTerms(rule, ranges.queries, ranges.keys));
    Hide(ranges);
  }

  // Attend or Backward is called once: they overwrite the scores. At most four tensors of their
  // size exist at a time.
  Mixed Attend(const at::Tensor& v, const BlockRanges& ranges) {
    const at::Tensor log_sums = scores_.logsumexp(-1);
    bent_.reset();
    const at::Tensor weights = TakeWeights(AboveInfinity(log_sums));
    if (rule_.factors) weights.mul_(rule_.factors(ranges));
    const at::Tensor values = OfKeyHeads(weights).matmul(v);
    return {values.view({shape_[0], shape_[1], shape_[2], v.size(3)}), log_sums};
  }

  // Adds to the gradients of keys and values, and returns the queries' gradient.
  at::Tensor Backward(const at::Tensor& upstream, const at::Tensor& v, const Mixed& mixed,
                      const BlockRanges& ranges, Qkv* sums) {
    const at::Tensor factors = rule_.factors ? rule_.factors(ranges) : at::Tensor();
    const at::Tensor weights = TakeWeights(mixed.log_sums);
    const at::Tensor above = OfKeyHeads(upstream);
    {
      const at::Tensor dropped = factors.defined() ? weights * factors : weights;
      sums->v.add_(OfKeyHeads(dropped).transpose(2, 3).matmul(above));
    }
    at::Tensor of_scores = above.matmul(v.transpose(2, 3)).view(shape_);
    if (factors.defined()) of_scores.mul_(factors);
    of_scores.sub_((upstream * mixed.values).sum(/*dim=*/-1, /*keepdim=*/true)).mul_(weights);
    if (bent_.defined()) of_scores.mul_(bent_.square_().neg_().add_(1.0));
    of_scores = OfKeyHeads(of_scores.mul_(rule_.scale));
    sums->k.add_(of_scores.transpose(2, 3).matmul(q_));
    return of_scores.matmul(k_).view({shape_[0], shape_[1], shape_[2], k_.size(3)});
  }

 private:
  // [B, heads, queries, n] -> [B, key heads, query heads per key head * queries, n]
  at::Tensor OfKeyHeads(const at::Tensor& x) const {
    return x.reshape({heads_[0], heads_[1], heads_[2], x.size(3)});
  }
  // Turns the scores into weights.
  const at::Tensor& TakeWeights(const at::Tensor& log_sums) {
    return scores_.sub_(log_sums.unsqueeze(-1)).exp_();
  }

  void Hide(const BlockRanges& ranges) {
    const auto along = [&](const TokenRange& range) {
      return at::arange(range.first, range.end(), scores_.options().dtype(at::kLong));
    };
    const at::Tensor queries = along(ranges.queries).unsqueeze(1), keys = along(ranges.keys);
    if (ranges.keys.end() > ranges.queries.first + 1) {
      scores_.masked_fill_(keys.gt(queries), -kInfinity);
    }
    if (rule_.window > 0 && ranges.keys.first < ranges.queries.end() - rule_.window) {
      scores_.masked_fill_(keys.le(queries - rule_.window), -kInfinity);
    }
    if (!rule_.documents) return;
    const at::Tensor numbers =
        rule_.documents->numbers().narrow(0, ranges.samples.first, ranges.samples.count);
    const auto of = [&](const TokenRange& range) {
      return numbers.narrow(1, range.first, range.count).unsqueeze(1);
    };
    scores_.masked_fill_(of(ranges.queries).unsqueeze(3).ne(of(ranges.keys).unsqueeze(2)),
                         -kInfinity);
  }

  std::vector<std::int64_t> heads_, shape_;
  at::Tensor q_, k_, scores_;
  at::Tensor bent_;  // tanh of the scores over the cap; undefined without
  const AttentionRule& rule_;
};

// Calls `run` with the rows of each tile and the positions of its queries.
template <typename Run>
void ForEachTile(const at::Tensor& q, const BlockRanges& ranges, const Run& run) {
  const std::int64_t row_bytes = q.size(0) * q.size(1) * ranges.keys.count * 4;
  const std::int64_t rows =
      std::clamp<std::int64_t>(sequence_parallel::kTileScoreBytes / row_bytes, 1, q.size(2));
  for (std::int64_t first = 0; first < q.size(2); first += rows) {
    const std::int64_t count = std::min(rows, q.size(2) - first);
    const auto of_tile = [first, count](const at::Tensor& x) {
      return x.narrow(2, first, count).to(at::kFloat);
    };
    run(of_tile, BlockRanges{{ranges.queries.first + first, count}, ranges.keys, ranges.samples});
  }
}

}  // namespace

at::Tensor PadColumns(const at::Tensor& x, std::int64_t width) {
  const std::int64_t missing = width - x.size(-1);
  return missing > 0 ? at::constant_pad_nd(x, {0, missing}) : x;
}

// Not always a slice: its gradient would be a copy.
at::Tensor TakeColumns(const at::Tensor& x, std::int64_t width) {
  return x.size(-1) == width ? x : x.narrow(-1, 0, width);
}

void Merge(const Mixed& block, std::int64_t first, Mixed* all) {
  const std::int64_t count = block.values.size(2);
  const at::Tensor values = all->values.narrow(2, first, count);
  const at::Tensor log_sums = all->log_sums.narrow(2, first, count);
  const at::Tensor merged = at::logaddexp(log_sums, block.log_sums);
  const at::Tensor base = AboveInfinity(merged);
  const auto share = [&base](const at::Tensor& of) { return (of - base).exp_().unsqueeze(-1); };
  values.mul_(share(log_sums)).add_(block.values * share(block.log_sums));
  log_sums.copy_(merged);
}

namespace {

std::optional<at::Tensor> MaskOf(const FusedOptions& options) {
  return options.terms.defined() ? std::optional(options.terms) : std::nullopt;
}

}  // namespace

Mixed AttendFused(const Qkv& block, const FusedOptions& options) {
  auto [values, log_sums] = at::_scaled_dot_product_flash_attention_for_cpu(
      block.q, block.k, block.v, /*dropout_p=*/0.0, options.causal, MaskOf(options), options.scale);
  return {values, log_sums};
}

Qkv AttendFusedBackward(const at::Tensor& upstream, const Qkv& block, const Mixed& mixed,
                        const FusedOptions& options) {
  auto [of_q, of_k, of_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      upstream, block.q, block.k, block.v, mixed.values, mixed.log_sums, /*dropout_p=*/0.0,
      options.causal, MaskOf(options), options.scale);
  return {of_q, of_k, of_v};
}

Mixed AttendByRule(const Qkv& block, const BlockRanges& ranges, const AttentionRule& rule) {
  const WithoutAutocast fp32;
  const at::Tensor keys = block.k.to(at::kFloat), of_keys = block.v.to(at::kFloat);
  std::vector<at::Tensor> values, log_sums;
  ForEachTile(block.q, ranges, [&](const auto& of_tile, const BlockRanges& stand) {
    const Mixed mixed = Tile(of_tile(block.q), keys, stand, rule).Attend(of_keys, stand);
    values.push_back(mixed.values);
    log_sums.push_back(mixed.log_sums);
  });
  return {at::cat(values, /*dim=*/2), at::cat(log_sums, /*dim=*/2)};
}

Qkv AttendByRuleBackward(const at::Tensor& upstream, const Qkv& block, const Mixed& mixed,
                         const BlockRanges& ranges, const AttentionRule& rule) {
  const WithoutAutocast fp32;
  const at::Tensor keys = block.k.to(at::kFloat), of_keys = block.v.to(at::kFloat);
  Qkv sums{.k = at::zeros_like(keys), .v = at::zeros_like(of_keys)};
  std::vector<at::Tensor> of_queries;
  ForEachTile(block.q, ranges, [&](const auto& of_tile, const BlockRanges& stand) {
    const Mixed rows{of_tile(mixed.values), of_tile(mixed.log_sums)};
    Tile tile(of_tile(block.q), keys, stand, rule);
    of_queries.push_back(tile.Backward(of_tile(upstream), of_keys, rows, stand, &sums));
  });
  sums.q = at::cat(of_queries, /*dim=*/2);
  return sums;
}

}  // namespace ds::kernels
