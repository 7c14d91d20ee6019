#pragma once

// FindPositions, AttentionBias: the positions of a micro-batch's tokens, and the attention bias
// that follows from documents, windows and distances.
//
// Both use the batch (batch.h): tokens of different "documents" in packed samples do not attend to
// each other, and "positions" overrides the positions. Without either, a sample is one document.

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/models/batch.h"
#include "runtime/models/layers/key_value_cache.h"
#include "runtime/parallel/sequence/chunked_attention.h"
#include "runtime/plan/model/tensor_plan.h"
#include "runtime/plan/sequence/head_shares.h"
#include "runtime/plan/sequence/token_ranges.h"

namespace ds::models {

// Returns the positions of the tokens, int64 [B, S]: the batch's, or counted from the first token
// of each document. Returns [S] if the batch has neither positions nor documents.
at::Tensor FindPositions(const Batch& batch);

// Returns a function that decides, from ranges of document ids, whether two chunks of a batch's
// samples have documents in common. Returns an empty function if there is only one document, or if
// the documents are on a device that the caller would have to wait for.
sequence_parallel::AttendsTo FindSharedDocuments(
    const Batch& batch, const std::vector<sequence_parallel::SequenceChunk>& chunks);

// AttentionBias computes the bias of a decoder's attention scores (AttentionOptions::bias). One
// object serves all layers of a model; it caches one bias for windowed layers and one for the
// others.
class AttentionBias {
 public:
  // `heads` is the range of the plan's heads that the bias is for.
  AttentionBias(const TensorPlan& plan, const sequence_parallel::HeadRange& heads);

  // Returns the bias for queries shaped like `q`, [B, heads, S, head width]. Returns an undefined
  // tensor if plain causal attention is enough, so that the fastest kernel can be used: one
  // document, no distance term, and no token's past longer than the window.
  at::Tensor Find(bool windowed, const Batch& batch, const at::Tensor& q);

  // Returns whether FindBetween has anything to add.
  bool HasBetween(const Batch& batch) const;
  // Returns the bias between these token ranges of a batch's samples, fp32 [B or 1, heads or 1,
  // queries, keys]. Covers documents and distances, but neither the causal mask nor the window.
  at::Tensor FindBetween(const Batch& batch, sequence_parallel::TokenRange queries,
                         sequence_parallel::TokenRange keys, c10::Device device) const;

  // Returns the bias for a pass over the tokens of `cache`: [B or 1, heads or 1, S, tokens()], or
  // an undefined tensor in a first pass that needs none.
  at::Tensor FindCached(bool windowed, const KeyValueCache& cache, const at::Tensor& q);

 private:
  struct CachedBias {
    // The documents or positions that the bias was computed from. Kept alive so that no other
    // tensor can get their address.
    at::Tensor of;
    std::int64_t tokens = 0;  // of the keys
    at::Tensor bias;

    bool Fits(const at::Tensor& made_of, std::int64_t keys, const at::Tensor& q) const;
  };
  at::Tensor Make(std::int64_t window, const at::Tensor& documents, const at::Tensor& q) const;
  // Returns the ALiBi term, fp32 [B or 1, heads or 1, S or 1, keys], for queries at positions [B or
  // 1, 1, S, 1] or [S, 1] and keys at positions [keys]; zero if the model has no ALiBi.
  at::Tensor MakeSlopes(const at::Tensor& queries, const at::Tensor& keys) const;

  Positions positions_;
  std::int64_t window_;
  double scale_;                // of the scores
  std::vector<double> slopes_;  // of ALiBi, by head
  std::array<CachedBias, 2> made_;
};

}  // namespace ds::models
