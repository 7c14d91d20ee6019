#pragma once

// LatentProjection: the queries, keys and values of multi-head latent attention (DeepSeek-V2,
// https://arxiv.org/abs/2405.04434). Keys and values of all heads are widened from one narrow,
// normed row a token; beside it stand a few elements that all heads have in common at their keys,
// and these alone, with as many of the queries, are turned by positions. Queries may come from a
// narrow row of their own.
//
// Weights have transformers' layout, in which the elements of a head that are turned stand behind
// the others, neighbours being a pair. What leaves here has them in front, the two halves being the
// pairs, as rotary.h takes them: scores are the same, for queries and keys are ordered alike.

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <array>
#include <cstdint>
#include <memory>

#include "runtime/models/layers.h"
#include "runtime/models/norms.h"
#include "runtime/models/spec/decoder_spec.h"

namespace ds::models {

class LatentProjection {
 public:
  // Registers its parts in `layer`, at the place of its attention.
  LatentProjection(torch::nn::Module& layer, const DecoderSpec& spec,
                   const at::TensorOptions& options);

  // x [B, S, width]: queries and keys [B, S, heads, head width], values [B, S, heads, value width].
  std::array<at::Tensor, 3> forward(const at::Tensor& x) const;

 private:
  // The last `turned` elements of each head, paired as rotary.h pairs them, before the others.
  at::Tensor TurnedFirst(const at::Tensor& heads) const;

  std::int64_t heads_, latent_width_, turned_, still_, value_width_;
  std::shared_ptr<Product> query_;         // from x, or from the row below
  std::shared_ptr<Product> query_latent_;  // null without
  std::shared_ptr<Norm> query_norm_;
  std::shared_ptr<Product> latent_, wide_;
  std::shared_ptr<Norm> norm_;
};

}  // namespace ds::models
