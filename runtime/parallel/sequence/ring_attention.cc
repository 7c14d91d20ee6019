#include "runtime/parallel/sequence/ring_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/comm/communicator.h"

namespace ds::sequence_parallel {
namespace {

using kernels::AttentionRule;
using kernels::BlockRanges;
using kernels::Mixed;
using kernels::Qkv;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A range of this rank's queries and a range of a block's keys that they see. `first_query` and
// `first_key` are indices in the rank's own tokens; `ranges` are positions in the sample (if fused,
// only the counts are used).
struct Pair {
  std::int64_t first_query = 0, first_key = 0;
  BlockRanges ranges;
  bool causal = false;  // both are all tokens of this rank
};

// Ring passes blocks of keys between neighbours, and lists and computes one rank's pairs for a
// block.
class Ring : public torch::CustomClassHolder {
 public:
  Ring(const SequenceGroup& group, std::int64_t tokens, AttentionRule rule, bool fused)
      : group_(group), tokens_(tokens), rule_(std::move(rule)), fused_(fused) {}

  int size() const { return group_.size(); }
  // Sends to the next rank, and receives from the previous one.
  comm::Work Pass(const at::Tensor& outgoing, const at::Tensor& incoming) const {
    const int next = (group_.rank() + 1) % size();
    const int before = (group_.rank() + size() - 1) % size();
    return group_.ranks()->SendRecvAsync(outgoing, next, incoming, before, "sequence");
  }
  // Returns the pairs for the block that this rank has after `step` steps; its own block first.
  std::vector<Pair> PairsAt(int step) const {
    const int source = (group_.rank() + size() - step) % size();
    return fused_ ? PairsOfHalves(source) : PairsOfStretches(source);
  }
  Mixed Attend(const at::Tensor& q, const at::Tensor& block, const Pair& pair) const {
    const Qkv own = Take(q, block, pair);
    return fused_ ? kernels::AttendFused(own, OptionsOf(pair))
                  : kernels::AttendByRule(own, RangesOf(own, pair), rule_);
  }
  // Uses the pair's rows of `upstream` and `mixed`.
  Qkv Backward(const at::Tensor& upstream, const Mixed& mixed, const Qkv& own,
               const Pair& pair) const {
    const auto rows = [&](const at::Tensor& x) {
      return x.narrow(2, pair.first_query, pair.ranges.queries.count);
    };
    const Mixed part{rows(mixed.values), rows(mixed.log_sums)};
    return fused_ ? kernels::AttendFusedBackward(rows(upstream), own, part, OptionsOf(pair))
                  : kernels::AttendByRuleBackward(rows(upstream), own, part, RangesOf(own, pair),
                                                  rule_);
  }
  static Qkv Take(const at::Tensor& q, const at::Tensor& block, const Pair& pair) {
    const auto keys = [&](int which) {
      return block[which].narrow(2, pair.first_key, pair.ranges.keys.count);
    };
    return {q.narrow(2, pair.first_query, pair.ranges.queries.count), keys(0), keys(1)};
  }

 private:
  kernels::FusedOptions OptionsOf(const Pair& pair) const {
    return {.scale = rule_.scale, .causal = pair.causal};
  }
  static BlockRanges RangesOf(const Qkv& own, const Pair& pair) {
    return {pair.ranges.queries, pair.ranges.keys, {0, own.q.size(0)}};
  }
  std::vector<TokenRange> TokensOf(int rank) const {
    return FindTokens(SequenceKind::kRing, tokens_, rank, size());
  }

  // All tokens of a rank see the first range of an earlier rank, and none of that rank's others. Of
  // its tokens only the last range sees a later rank's tokens, and sees them all. So each block is
  // one call.
  std::vector<Pair> PairsOfHalves(int source) const {
    const std::int64_t own = tokens_ / size();
    const std::int64_t front = TokensOf(group_.rank()).front().count;
    if (source == group_.rank()) return {{.ranges = {{0, own}, {0, own}}, .causal = true}};
    if (source < group_.rank()) return {{.ranges = {{0, own}, {0, front}}}};
    if (own == front) return {};
    return {{.first_query = front, .ranges = {{front, own - front}, {0, own}}}};
  }

  std::vector<Pair> PairsOfStretches(int source) const {
    std::vector<Pair> pairs;
    std::int64_t first_query = 0;
    for (const TokenRange& queries : TokensOf(group_.rank())) {
      std::int64_t first_key = 0;
      for (const TokenRange& keys : TokensOf(source)) {
        if (rule_.Sees(queries, keys)) pairs.push_back({first_query, first_key, {queries, keys}});
        first_key += keys.count;
      }
      first_query += queries.count;
    }
    return pairs;
  }

  SequenceGroup group_;
  std::int64_t tokens_;  // in a sample
  AttentionRule rule_;
  bool fused_;
};

// Returns the result of queries that saw no keys.
Mixed MixNothing(const at::Tensor& q) {
  const auto options = q.options().dtype(at::kFloat);
  return {at::zeros_like(q, options), at::full({q.size(0), q.size(1), q.size(2)},
                                               -std::numeric_limits<double>::infinity(), options)};
}

Mixed GoRound(const Ring& ring, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  Mixed all = MixNothing(q);
  at::Tensor block = at::stack({k, v});
  for (int step = 0; step < ring.size(); ++step) {
    at::Tensor incoming;
    std::optional<comm::Work> passing;
    if (step + 1 < ring.size()) {
      incoming = at::empty_like(block);
      passing = ring.Pass(block, incoming);
    }
    for (const Pair& pair : ring.PairsAt(step)) {
      kernels::Merge(ring.Attend(q, block, pair), pair.first_query, &all);
    }
    if (!passing) break;
    passing->wait();
    block = incoming;
  }
  return {all.values.to(q.scalar_type()), all.log_sums};
}

// This rank's own tensors in the backward pass.
struct Own {
  at::Tensor upstream, q;
  Mixed mixed;
  at::Tensor of_queries;  // the queries' gradient, accumulated in fp32
};

// Adds a block's contribution to the gradient of the queries. Returns the gradients of its keys and
// values, stacked.
at::Tensor AddBlock(const Ring& ring, int step, const at::Tensor& block, const Own& own) {
  at::Tensor gradients = at::zeros_like(block, block.options().dtype(at::kFloat));
  for (const Pair& pair : ring.PairsAt(step)) {
    const Qkv part = ring.Backward(own.upstream, own.mixed, Ring::Take(own.q, block, pair), pair);
    own.of_queries.narrow(2, pair.first_query, part.q.size(2)).add_(part.q);
    gradients[0].narrow(2, pair.first_key, part.k.size(2)).add_(part.k);
    gradients[1].narrow(2, pair.first_key, part.v.size(2)).add_(part.v);
  }
  return gradients;
}

Qkv GoRoundAgain(const Ring& ring, const at::Tensor& upstream, const Qkv& qkv, const Mixed& mixed) {
  const auto& [q, k, v] = qkv;
  const Own own{upstream, q, mixed, at::zeros_like(q, q.options().dtype(at::kFloat))};
  at::Tensor block = at::stack({k, v}), arriving;
  std::optional<comm::Work> passing, returning;
  for (int step = 0; step < ring.size(); ++step) {
    at::Tensor incoming;
    const bool goes_on = step + 1 < ring.size();
    if (goes_on) {
      incoming = at::empty_like(block);
      passing = ring.Pass(block, incoming);
    }
    const at::Tensor gradients = AddBlock(ring, step, block, own);
    if (returning) {
      returning->wait();
      gradients.add_(arriving);
    }
    arriving = at::empty_like(gradients);
    returning = ring.Pass(gradients, arriving);
    if (goes_on) {
      passing->wait();
      block = incoming;
    }
  }
  returning->wait();
  return {own.of_queries.to(q.scalar_type()), arriving[0].to(k.scalar_type()),
          arriving[1].to(v.scalar_type())};
}

class RingFunction : public torch::autograd::Function<RingFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const c10::intrusive_ptr<Ring>& ring) {
    const Mixed mixed = GoRound(*ring, q, k, v);
    context->saved_data["ring"] = c10::IValue::make_capsule(ring);
    context->save_for_backward({q, k, v, mixed.values, mixed.log_sums});
    return mixed.values;
  }
  static variable_list backward(AutogradContext* context, const variable_list& upstream) {
    const auto capsule = context->saved_data["ring"].toCapsule();
    const variable_list saved = context->get_saved_variables();
    const auto [q, k, v] =
        GoRoundAgain(*static_cast<Ring*>(capsule.get()), upstream[0].contiguous(),
                     {saved[0], saved[1], saved[2]}, {saved[3], saved[4]});
    return {q, k, v, {}};
  }
};

}  // namespace

at::Tensor RingAttention(const SequenceGroup& ranks, const at::Tensor& q, const at::Tensor& k,
                         const at::Tensor& v, const AttentionRule& rule) {
  const std::int64_t tokens = q.size(2) * ranks.size();
  const bool fused = rule.IsScaleAlone(tokens) && q.device().is_cpu();
  return RingFunction::apply(q, k, v, c10::make_intrusive<Ring>(ranks, tokens, rule, fused));
}

}  // namespace ds::sequence_parallel
