#pragma once

// AttendFused and AttendByRule compute a block of attention: some queries over some of the keys
// that they see. Merge combines blocks, by the log-sum-exp of each query's scores (Rabe and Staats
// 2021, arXiv 2112.05682; Dao 2023, arXiv 2307.08691).
//
// Queries are [B, heads, queries, width]. Keys and values are [B, their heads, keys, width]; each
// of their heads is shared by a run of neighbouring query heads. Thread-safe.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "runtime/plan/sequence/token_ranges.h"

namespace ds::sequence_parallel {

// AttentionRule defines which tokens a token sees, and how strongly: at most itself and those
// before it.
struct AttentionRule {
  // Makes a tensor [B or 1, heads or 1, queries, keys] for tokens at these positions of the sample.
  using Between = std::function<at::Tensor(TokenRange queries, TokenRange keys)>;

  double scale = 1.0;       // of the scores
  double soft_cap = 0.0;    // c in c tanh(score / c), before the bias; 0: none
  std::int64_t window = 0;  // number of visible tokens, including itself; 0: all
  Between bias = {};        // added to the scores: -infinity if not visible; empty: none
  Between factors = {};     // factors of the weights, as in dropout; empty: none

  // Returns whether a token of these queries may see one of these keys.
  bool Sees(TokenRange queries, TokenRange keys) const;
  // Returns whether, for samples with `tokens` tokens, the rule is no more than a scale.
  bool IsScaleAlone(std::int64_t tokens) const {
    return !bias && !factors && soft_cap == 0.0 && (window == 0 || window >= tokens);
  }
};

// Weighted sums of values, [B, heads, queries, width], and the logarithms of the weights' divisors,
// fp32 [B, heads, queries]. A query that saw no key has -infinity, and values of zero.
struct Mixed {
  at::Tensor values, log_sums;
};

// Merges the block into `all`, the result for other keys; `first` is the block's first query there.
// Changes values and logarithms of `all` in place.
void Merge(const Mixed& block, std::int64_t first, Mixed* all);

// Queries, keys and values, or their gradients.
struct Qkv {
  at::Tensor q, k, v;
};

// These use LibTorch's fused CPU kernel and support a scale only. `causal`: queries and keys are of
// the same tokens. The backward returns the block's gradients; `mixed` is the result over all keys
// and `upstream` the gradient of its values.
Mixed AttendFused(const Qkv& block, bool causal, double scale);
Qkv AttendFusedBackward(const at::Tensor& upstream, const Qkv& block, const Mixed& mixed,
                        bool causal, double scale);

// These use operators in fp32, on any device and for any rule. At most about 64 MiB of scores exist
// at a time. Results are fp32.
struct BlockRanges {
  TokenRange queries, keys;
};
Mixed AttendByRule(const Qkv& block, const BlockRanges& ranges, const AttentionRule& rule);
Qkv AttendByRuleBackward(const at::Tensor& upstream, const Qkv& block, const Mixed& mixed,
                         const BlockRanges& ranges, const AttentionRule& rule);

}  // namespace ds::sequence_parallel
