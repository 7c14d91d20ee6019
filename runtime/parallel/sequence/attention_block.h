#pragma once

// A block of attention: some queries over some of the keys that they see, with what it takes to put
// blocks together: the logarithm of the sum of the exponentials of each query's scores (Rabe and
// Staats 2021, arXiv 2112.05682; Dao 2023, arXiv 2307.08691).
//
// Queries are [B, heads, queries, width]; keys and values [B, their heads, keys, width], where each
// head is shared by as many neighbouring heads of the queries. Threads: any.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "runtime/plan/sequence/token_ranges.h"

namespace ds::sequence_parallel {

// AttentionRule says what a token sees, and how much of it: those before it and itself, at most.
struct AttentionRule {
  // Makes a tensor of [B or 1, heads or 1, queries, keys] for tokens at these places of the sample.
  using Between = std::function<at::Tensor(TokenRange queries, TokenRange keys)>;

  double scale = 1.0;       // of the scores
  double soft_cap = 0.0;    // c in c tanh(score / c), before the bias; 0: none
  std::int64_t window = 0;  // it sees so many, itself included; 0: all
  Between bias = {};        // added to the scores: -infinity where it does not see; empty: none
  Between factors = {};     // the weights are multiplied by them, as dropout does; empty: none

  // Tells whether a token of these queries may see one of these keys.
  bool Sees(TokenRange queries, TokenRange keys) const;
  // Tells whether, of samples of so many tokens, the scale is all that it asks for.
  bool IsScaleAlone(std::int64_t tokens) const {
    return !bias && !factors && soft_cap == 0.0 && (window == 0 || window >= tokens);
  }
};

// Values that weights have mixed, [B, heads, queries, width], and the logarithms of the sums that
// the weights were divided by, fp32 [B, heads, queries]: -infinity, and values of zero, where a
// query has seen nothing.
struct Mixed {
  at::Tensor values, log_sums;
};

// Adds the block to what `all` has of other keys: `first` is its first query there. Values and
// logarithms of `all` change in place.
void Merge(const Mixed& block, std::int64_t first, Mixed* all);

// Queries, keys and values, or their gradients.
struct Qkv {
  at::Tensor q, k, v;
};

// These go by LibTorch's fused kernel of CPUs, by the scale alone. `causal`: queries and keys are
// of the same tokens. Gradients are those of the block, where `mixed` is of all keys and `upstream`
// the gradient of its values.
Mixed AttendFused(const Qkv& block, bool causal, double scale);
Qkv AttendFusedBackward(const at::Tensor& upstream, const Qkv& block, const Mixed& mixed,
                        bool causal, double scale);

// These go by operators in fp32, on any device and by any rule; of the scores no more than some 64
// MiB is there at once. Results are fp32.
struct BlockPlaces {
  TokenRange queries, keys;
};
Mixed AttendByRule(const Qkv& block, const BlockPlaces& places, const AttentionRule& rule);
Qkv AttendByRuleBackward(const at::Tensor& upstream, const Qkv& block, const Mixed& mixed,
                         const BlockPlaces& places, const AttentionRule& rule);

}  // namespace ds::sequence_parallel
