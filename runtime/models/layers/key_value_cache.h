#pragma once

// KeyValueCache: the keys and values of the tokens that a decoder has seen, so that a further pass
// computes those of new tokens only.
//
// Token i of a sample stands in place i and has position i, whatever the other samples of the batch
// are: samples of unequal length end at different places. What lies behind a sample's end is
// finite, is seen by none of its tokens, and is written over when the sample grows.
//
// A pass: Extend, then every block's forward with the batch's "positions" set to positions(), and
// every layer Keeps what is new. Of a rank that has the whole of its samples (no sequence ranks).
//
// Where angles follow the length of a sequence (DependsOnLength), all that earlier tokens have come
// to changes with it: the cache holds for one sample, and until HaveSameFrequencies says no.
//
// Threads: one.

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
    std::int64_t capacity = 0;  // tokens of a sample, padding of a pass included
  };

  // Takes all its memory, of the options' dtype and device, at once.
  KeyValueCache(const DecoderSpec& spec, const Shape& shape, const at::TensorOptions& options);

  // Begins a pass over [samples, max(counts)] tokens, of which the first counts[b] of sample b are
  // its next ones and the others padding. Throws c10::Error where they do not fit.
  void Extend(const std::vector<std::int64_t>& counts);

  // Keeps a layer's keys and values of the pass, [samples, heads, S, head width]; returns all that
  // it has, [samples, heads, tokens(), head width].
  std::array<at::Tensor, 2> Keep(std::int64_t layer, const at::Tensor& keys,
                                 const at::Tensor& values);

  // Begins anew.
  void Clear();

  // Goes on with these samples, in this order. Between passes.
  void Select(const std::vector<std::int64_t>& samples);

  // Tells how many tokens each sample has, those of the pass included.
  const std::vector<std::int64_t>& lengths() const { return lengths_; }
  // The places that a pass attends to: up to its last token.
  std::int64_t tokens() const { return tokens_; }
  // True in the first pass: tokens see others of their own pass only.
  bool begins() const { return begins_; }
  // The positions of the pass's tokens, int64 [samples, S]; another tensor in every pass.
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
