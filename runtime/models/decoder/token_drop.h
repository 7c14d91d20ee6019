#pragma once

// Random layerwise token dropping (https://arxiv.org/abs/2211.11586): while training, some layers
// see some of a sample's tokens, chosen anew for each of them and each step; what they do not see
// passes them by. The choice is a function of seed, step, sample and layer, like dropout's.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/models/block.h"

namespace ds::models {

// Is shared by the layers of a model that drop tokens, and by who knows the step.
struct TokenDrop {
  std::int64_t kept =
      0;  // tokens of a sample that these layers see; 0, or as many as there are: all
};

// Makes the layers with these indices drop tokens. Refuses a model that has another number of them
// than `total`. The model may be a stage's part.
StatusOr<std::shared_ptr<TokenDrop>> AddTokenDrop(const BlockList& model, std::int64_t total,
                                                  const std::vector<std::int64_t>& layers);

// The tokens, ascending, that a layer sees of each sample: int64 [samples, kept] of `tokens`.
at::Tensor ChooseTokens(std::int64_t samples, std::int64_t tokens, std::int64_t kept,
                        const RandomPlace& place, c10::Device device);

// Takes what the batch and bundle.hidden have at the chosen tokens, with their positions.
Bundle KeepTokens(const Bundle& bundle, const at::Tensor& chosen);

}  // namespace ds::models
