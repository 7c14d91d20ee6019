#pragma once

// FindPositions, AttentionTerms: the positions of a micro-batch's tokens, and what follows from
// documents, windows and distances for attention.
//
// Both use the batch (batch.h): tokens of different "documents" in packed samples do not attend to
// each other, and "positions" overrides the positions. Without either, a sample is one document.

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/device/kernels/attention_rule.h"
#include "runtime/models/batch.h"
#include "runtime/models/bundle.h"
#include "runtime/models/layers/key_value_cache.h"
#include "runtime/plan/model/tensor_plan.h"
#include "runtime/plan/sequence/head_shares.h"

namespace ds::models {

// Returns the positions of the tokens, int64 [B, S]: the batch's, or counted from the first token
// of each document. Returns [S] if the batch has neither positions nor documents.
at::Tensor FindPositions(const Batch& batch);

// AttentionTerms computes the parts of the rules of attention that all layers of a decoder share:
// documents, distances, and the bias over cached tokens. Each is made once for a micro-batch.
//
// Threads: the thread of the pass.
class AttentionTerms {
 public:
  // `heads` is the range of the plan's heads that attention is computed for.
  AttentionTerms(const TensorPlan& plan, const sequence_parallel::HeadRange& heads);

  // Returns the documents of the bundle's samples; null if it has none. Waits for their device
  // unless the bundle knows them.
  std::shared_ptr<const kernels::SampleDocuments> FindDocuments(const Bundle& bundle);
  // Returns AttentionRule::key_terms for samples of `tokens` tokens; undefined without ALiBi.
  at::Tensor FindKeyTerms(std::int64_t tokens, c10::Device device);
  // Returns the bias for a pass over the tokens of `cache`, of which others came before: [B or 1,
  // heads or 1, S, tokens()] in the dtype of the queries `q`.
  at::Tensor FindCached(bool windowed, const KeyValueCache& cache, const at::Tensor& q);

 private:
  struct CachedBias {
    // The positions that the bias was computed from. Kept alive so that no other tensor can get
    // their address.
    at::Tensor of;
    std::int64_t tokens = 0;  // of the keys
    at::Tensor bias;

    bool Fits(const at::Tensor& made_of, std::int64_t keys, const at::Tensor& q) const;
  };
  // Returns the ALiBi terms of keys at these positions, fp64 [heads, keys].
  at::Tensor MakeKeyTerms(const at::Tensor& positions) const;

  Positions positions_;
  std::int64_t window_;
  double scale_;                // of the scores
  std::vector<double> slopes_;  // of ALiBi, by head
  std::shared_ptr<const kernels::SampleDocuments> documents_;
  at::Tensor key_terms_;
  std::array<CachedBias, 2> made_;  // for windowed layers and for the others
};

}  // namespace ds::models
