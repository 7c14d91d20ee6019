#pragma once

// This says where the tokens of a micro-batch stand: their positions, and what each of them sees.
//
// A batch may tell (batch.h): "documents" are those of packed samples, of which none sees
// another; "positions" are what positions are taken for. Without either a sample is one document.

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/models/batch.h"
#include "runtime/models/layers/key_value_cache.h"
#include "runtime/parallel/sequence/portion_attention.h"
#include "runtime/plan/model/tensor_plan.h"
#include "runtime/plan/sequence/head_shares.h"
#include "runtime/plan/sequence/token_ranges.h"

namespace ds::models {

// The positions of the tokens, int64 [B, S]: those of the batch, or counted from the first token of
// each document. [S] where the batch has neither.
at::Tensor FindPositions(const Batch& batch);

// Tells of portions of a batch's samples whether some documents are in both, by the ranges of their
// numbers; empty where there is one document, or on a device that would be waited for.
sequence_parallel::LooksAt FindSharedDocuments(
    const Batch& batch, const std::vector<sequence_parallel::Portion>& portions);

// AttentionBias makes what a decoder's attention adds to its scores (AttentionOptions::bias). One
// serves all layers of a model: it keeps the last two it made, one for windowed layers and one for
// the others.
class AttentionBias {
 public:
  // `heads` are those of the plan's that it is for.
  AttentionBias(const TensorPlan& plan, const sequence_parallel::HeadRange& heads);

  // For queries like `q`, [B, heads, S, head width], of a batch. Undefined where causal attention
  // needs none, so that it can go by the fastest kernel: one document, no distances, and a window
  // that no token's past exceeds.
  at::Tensor Find(bool windowed, const Batch& batch, const at::Tensor& q);

  // Tells whether FindBetween has something to add.
  bool HasBetween(const Batch& batch) const;
  // For tokens at these places of a batch's samples, fp32 [B or 1, heads or 1, queries, keys]: what
  // documents and distances say. Not that later tokens are not seen, nor of a window.
  at::Tensor FindBetween(const Batch& batch, sequence_parallel::TokenRange queries,
                         sequence_parallel::TokenRange keys, c10::Device device) const;

  // For queries of a pass over what `cache` has: [B or 1, heads or 1, S, tokens()], undefined in a
  // first pass that needs none.
  at::Tensor FindCached(bool windowed, const KeyValueCache& cache, const at::Tensor& q);

 private:
  struct Made {
    // The documents or the positions of which it was made; held, so that no other has its address.
    at::Tensor of;
    std::int64_t tokens = 0;  // of the keys
    at::Tensor bias;

    bool Fits(const at::Tensor& made_of, std::int64_t keys, const at::Tensor& q) const;
  };
  at::Tensor Make(std::int64_t window, const at::Tensor& documents, const at::Tensor& q) const;
  // The share of ALiBi, fp32 [B or 1, heads or 1, S or 1, keys], where queries stand at places
  // [B or 1, 1, S, 1] or [S, 1], and keys at [keys]; zero without.
  at::Tensor MakeSlopes(const at::Tensor& queries, const at::Tensor& keys) const;

  Positions positions_;
  std::int64_t window_;
  double scale_;                // of the scores
  std::vector<double> slopes_;  // of ALiBi, by head
  std::array<Made, 2> made_;
};

}  // namespace ds::models
