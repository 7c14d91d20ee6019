#pragma once

// The last block of a language model: final normalisation, vocabulary projection and cross entropy.

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/models/block.h"
#include "runtime/models/decoder_slice.h"
#include "runtime/models/layers/layers.h"

namespace ds::models {

// The tensors that a language model takes of a batch are these.
inline constexpr std::array<std::string_view, 5> kLanguageModelBatch{"tokens", "labels", "mask",
                                                                     "positions", "documents"};

// The extra that the head sets beside a loss in evaluation mode: how many of the labels that count
// are the most likely tokens, one int64.
inline constexpr char kHitsName[] = "hits";

// Appends the head of `slice` to `model`, whose block 0 holds `embedding`, if it is not null. An
// untied head registers a matrix of its own; a tied one has none and reads block 0, or, where that
// is on another stage, holds the same table under the same name.
//
// Its forward sets bundle.loss when there are labels: in evaluation mode the cross entropy, while
// training with the experts' balance loss where the model has one. Else it sets extras["logits"]
// [B, S, vocabulary], of the rank's part of the vocabulary.
void AddLmHead(BlockList& model, const DecoderSlice& slice,
               const std::shared_ptr<Embedding>& embedding, const at::TensorOptions& options);

}  // namespace ds::models
