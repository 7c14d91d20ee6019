#pragma once

// The last block of a language model: final normalisation, vocabulary projection and cross entropy.

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/models/block.h"
#include "runtime/models/layers.h"

namespace ds::models {

// The tensors that a language model takes of a batch are these.
inline constexpr std::array<std::string_view, 3> kLanguageModelBatch{"tokens", "labels", "mask"};

struct LmHeadParts {
  std::array<std::string, 2> norm_path;  // {"transformer", "ln_f"}: where the norm's name hangs
  std::shared_ptr<Norm> norm;
  std::shared_ptr<Embedding> embedding;  // of the list's block 0
  bool tied = false;                     // project with the embedding's matrix
  double initializer_range = 0.02;
};

// Appends the head to `model`, whose block 0 holds the embedding. An untied head registers
// "lm_head.weight"; a tied one has no matrix and reads block 0.
//
// Its forward sets bundle.loss when there are labels, else extras["logits"] [B, S, vocabulary].
void AddLmHead(BlockList& model, const LmHeadParts& parts);

}  // namespace ds::models
