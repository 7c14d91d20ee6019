#pragma once

// Random layerwise token dropping (https://arxiv.org/abs/2211.11586): in training, some layers
// process only some tokens of a sample, chosen anew for each layer and step. The other tokens skip
// the layer. The choice depends only on seed, step, sample and layer, like dropout's.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/models/block.h"

namespace ds::models {

// Shared by all layers that drop tokens and by the caller that sets `kept` for each step.
struct TokenDrop {
  // The tokens of a sample that these layers process; 0, or at least the number of tokens: all.
  std::int64_t kept = 0;
};

// Makes the layers with these indices drop tokens. Refuses a model with another number of layers
// than `total`. The model may be a pipeline stage's part.
StatusOr<std::shared_ptr<TokenDrop>> AddTokenDrop(const BlockList& model, std::int64_t total,
                                                  const std::vector<std::int64_t>& layers);

// Returns the tokens that a layer processes of each sample, ascending: int64 [samples, kept],
// chosen from `tokens` tokens.
at::Tensor ChooseTokens(std::int64_t samples, std::int64_t tokens, std::int64_t kept,
                        const RandomPosition& origin, c10::Device device);

// Selects the chosen tokens from the batch and bundle.hidden; they keep their positions.
Bundle KeepTokens(const Bundle& bundle, const at::Tensor& chosen);

}  // namespace ds::models
