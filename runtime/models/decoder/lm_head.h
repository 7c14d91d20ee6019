#pragma once

// AddLmHead: the last block of a language model (final norm, vocabulary projection, cross entropy).

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/models/block.h"
#include "runtime/models/decoder_slice.h"
#include "runtime/models/layers/layers.h"

namespace ds::models {

// The names of the tensors that a language model accepts in a batch.
inline constexpr std::array<std::string_view, 6> kLanguageModelBatch{
    "tokens", "labels", "mask", "valid", "positions", "documents"};

// In evaluation mode the head sets this extra in addition to the loss: the number of labels that
// are also the most likely token, one int64. Ignored labels do not count.
inline constexpr char kHitsName[] = "hits";

// Appends the head of `slice` to `model`. `embedding` is the one in block 0, or null. An untied
// head registers its own matrix. A tied head reads the matrix of block 0, or, if block 0 is on
// another stage, holds the same table under the same name.
//
// The head's forward sets bundle.loss if there are labels: the cross entropy, plus, in training,
// the experts' balance loss if the model has one. Otherwise it sets extras["logits"] [B, S,
// vocabulary], restricted to this rank's part of the vocabulary.
void AddLmHead(BlockList& model, const DecoderSlice& slice,
               const std::shared_ptr<Embedding>& embedding, const at::TensorOptions& options);

}  // namespace ds::models
