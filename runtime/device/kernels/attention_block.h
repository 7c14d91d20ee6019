#pragma once

// AttendFused and AttendByRule compute a block of attention: some queries over some of the keys
// that they see. Merge combines blocks, by the log-sum-exp of each query's scores (Rabe and Staats
// 2021, arXiv 2112.05682; Dao 2023, arXiv 2307.08691).
//
// Queries are [B, heads, queries, width]. Keys and values are [B, their heads, keys, width]; each
// of their heads is shared by a run of neighbouring query heads. Thread-safe.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/device/kernels/attention_rule.h"

namespace ds::kernels {

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

// Returns x [..., n] with zeros up to `width` columns, and the first `width` columns of x; x itself
// if it has as many. Fused kernels take keys and values of one width; columns of zeros change no
// score and no other column of a result.
at::Tensor PadColumns(const at::Tensor& x, std::int64_t width);
at::Tensor TakeColumns(const at::Tensor& x, std::int64_t width);

// These use LibTorch's fused CPU kernel and support a scale only, and `terms` added to the scores,
// [samples or 1, heads or 1, queries or 1, keys] of fp32 or the queries' dtype (undefined: none).
// `causal`: queries and keys are of the same tokens, of which each sees itself and those before.
// The backward returns the block's gradients; `mixed` is the result over all keys and `upstream`
// the gradient of its values.
struct FusedOptions {
  double scale = 1.0;
  bool causal = false;
  at::Tensor terms = {};
};
Mixed AttendFused(const Qkv& block, const FusedOptions& options);
Qkv AttendFusedBackward(const at::Tensor& upstream, const Qkv& block, const Mixed& mixed,
                        const FusedOptions& options);

// These use operators in fp32, on any device and for any rule. At most about 64 MiB of scores exist
// at a time. Results are fp32.
Mixed AttendByRule(const Qkv& block, const BlockRanges& ranges, const AttentionRule& rule);
Qkv AttendByRuleBackward(const at::Tensor& upstream, const Qkv& block, const Mixed& mixed,
                         const BlockRanges& ranges, const AttentionRule& rule);

}  // namespace ds::kernels
