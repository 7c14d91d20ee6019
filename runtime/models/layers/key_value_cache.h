#pragma once

// KeyValueCache: the keys and values of the tokens that a decoder has processed, so that a further
// pass computes them for new tokens only.
//
// Token i of a sample is at index i and has position i, independent of the other samples of the
// batch; samples of unequal length end at different indices. Entries after a sample's end are
// finite, are masked for all its tokens, and are overwritten when the sample grows.
//
// For each pass, call Extend, then every block's forward with the batch's "positions" set to
// positions(); every layer calls Keep with its new keys and values. Requires a rank that has full
// samples (no sequence parallelism).
//
// If rotary angles depend on the sequence length (DependsOnLength), all cached values change with
// it. The cache is then valid for one sample only, and only while HaveSameFrequencies holds.
//
// Not thread-safe.

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

class KeyValueCache {
 public:
  struct Shape {
    std::int64_t samples = 0;
    std::int64_t capacity = 0;  // tokens of a sample, including a pass's padding
  };

  // Allocates all memory at once, with the dtype and device of `options`.
  KeyValueCache(const DecoderSpec& spec, const Shape& shape, const at::TensorOptions& options);

  // Begins a pass over [samples, max(counts)] tokens. The first counts[b] tokens of sample b are
  // its next ones; the others are padding. Throws c10::Error if they do not fit.
  void Extend(const std::vector<std::int64_t>& counts);

  // Stores a layer's keys and values of the pass, [samples, heads, S, head width]. Returns all
  // cached ones of the layer, [samples, heads, tokens(), head width].
  std::array<at::Tensor, 2> Keep(std::int64_t layer, const at::Tensor& keys,
                                 const at::Tensor& values);

  // Empties the cache; its memory stays allocated.
  void Clear();

  // Continues with these samples, in this order. Call it between passes.
  void Select(const std::vector<std::int64_t>& samples);

  // The number of tokens of each sample, including the ones of the pass.
  const std::vector<std::int64_t>& lengths() const { return lengths_; }
  // The number of indices that a pass attends to, up to its last token.
  std::int64_t tokens() const { return tokens_; }
  // True in the first pass, in which tokens attend only to tokens of the same pass.
  bool begins() const { return begins_; }
  // The positions of the pass's tokens, int64 [samples, S]; a different tensor in every pass.
  const at::Tensor& positions() const { return positions_; }

 private:
  std::int64_t capacity_;
  std::vector<at::Tensor> keys_, values_;  // by layer: [samples, heads, capacity, head width]
  std::vector<std::int64_t> lengths_;
  std::int64_t tokens_ = 0;
  bool begins_ = true;
  at::Tensor positions_;
};

}  // namespace ds::models
