#pragma once

// AttentionRule defines which tokens a token sees, and how strongly: at most itself and the tokens
// before it, of its own document. SampleDocuments are the documents of a micro-batch.
//
// Threads: both are values that do not change; thread-safe.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/plan/sequence/token_ranges.h"

namespace ds::kernels {

using sequence_parallel::TokenRange;

// The documents of B samples of S tokens. Documents are contiguous; together they are all tokens of
// a sample.
class SampleDocuments {
 public:
  // `numbers` [B, S] of an integer type: neighbouring tokens with the same number are of one
  // document. `on_host` holds the same numbers in host memory; without it the constructor waits for
  // the device of `numbers`. Throws c10::Error if their shapes differ, or if a number stands for
  // two documents of a sample.
  explicit SampleDocuments(const at::Tensor& numbers) : SampleDocuments(numbers, numbers.cpu()) {}
  SampleDocuments(at::Tensor numbers, const at::Tensor& on_host);

  const at::Tensor& numbers() const { return numbers_; }
  const at::Tensor& on_host() const { return on_host_; }
  // Returns the documents of a sample, in order.
  const std::vector<TokenRange>& Of(std::int64_t sample) const {
    return documents_[static_cast<std::size_t>(sample)];
  }
  // Returns the tokens of the longest document.
  std::int64_t longest() const { return longest_; }
  // Returns whether a document of any sample has tokens in both ranges.
  bool Connect(TokenRange a, TokenRange b) const;
  // Returns the first positions of all documents in a row of all samples, and the end: int32 on the
  // device of `numbers`, as kernels for documents take them ("cumulative lengths").
  const at::Tensor& starts() const { return starts_; }

 private:
  at::Tensor numbers_, on_host_, starts_;
  std::vector<std::vector<TokenRange>> documents_;  // by sample
  std::int64_t longest_ = 0;
};

// Some queries and keys of some samples, as positions in the samples.
struct BlockRanges {
  TokenRange queries, keys;
  TokenRange samples;
};

struct AttentionRule {
  // Makes an fp32 tensor [samples or 1, heads or 1, queries, keys] for these tokens.
  using Between = std::function<at::Tensor(const BlockRanges& ranges)>;

  double scale = 1.0;       // of the scores
  double soft_cap = 0.0;    // c in c tanh(score / c), before the terms are added; 0: none
  std::int64_t window = 0;  // number of visible tokens, including itself; 0: all
  std::shared_ptr<const SampleDocuments> documents = {};  // null: each sample is one
  // Added to the scores of each key, fp64 [heads or 1, S]; undefined: nothing. The softmax ignores
  // what is equal for all keys of a query, so these terms are distances, too (ALiBi).
  at::Tensor key_terms = {};
  Between factors = {};  // factors of the weights, as in dropout; empty: none

  // Returns whether a token of these queries may see one of these keys.
  bool Sees(TokenRange queries, TokenRange keys) const;
  // Returns whether, for samples with `tokens` tokens, the rule is no more than a scale.
  bool IsScaleAlone(std::int64_t tokens) const {
    return !documents && !key_terms.defined() && !factors && soft_cap == 0.0 &&
           (window == 0 || window >= tokens);
  }
};

// Returns the terms of the keys for a block, fp32 [1, heads or 1, 1, keys], relative to the term of
// its last query. So terms of near tokens are small and exact, at any position.
at::Tensor RelativeTerms(const AttentionRule& rule, TokenRange queries, TokenRange keys);

}  // namespace ds::kernels
