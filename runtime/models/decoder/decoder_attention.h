#pragma once

// The attention of one layer of a decoder: products, norms of queries and keys, positions, the
// attention itself, and the product behind it.

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/models/block.h"
#include "runtime/models/decoder_slice.h"
#include "runtime/models/layers/layers.h"
#include "runtime/models/layers/norms.h"
#include "runtime/models/layers/rotary.h"
#include "runtime/models/layers/token_places.h"
#include "runtime/parallel/sequence/portion_attention.h"
#include "runtime/parallel/tensor/group.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

// LatentProjection: the queries, keys and values of multi-head latent attention (DeepSeek-V2,
// https://arxiv.org/abs/2405.04434). Keys and values of all heads are widened from one narrow,
// normed row a token; beside it stand a few elements that all heads have in common at their keys,
// and these alone, with as many of the queries, are turned by positions. Queries may come from a
// narrow row of their own.
//
// Ranks that share the heads each widen their own; the narrow rows are computed by all of them.
//
// Weights have transformers' layout, in which the elements of a head that are turned stand behind
// the others, neighbours being a pair. What leaves here has them in front, the two halves being the
// pairs, as rotary.h takes them: scores are the same, for queries and keys are ordered alike.

class LatentProjection {
 public:
  // Registers its parts in `layer`, at the place of its attention. `spec` has the heads of one of
  // the `ranks`.
  LatentProjection(torch::nn::Module& layer, const DecoderSpec& spec,
                   const tensor_parallel::Group& ranks, const at::TensorOptions& options);

  // x [B, S, width]: queries and keys [B, S, heads, head width], values [B, S, heads, value width].
  std::array<at::Tensor, 3> forward(const at::Tensor& x, const RandomPlace& place) const;

 private:
  // The last `turned` elements of each head, paired as rotary.h pairs them, before the others.
  at::Tensor TurnedFirst(const at::Tensor& heads) const;

  tensor_parallel::Group ranks_;
  std::int64_t heads_, latent_width_, turned_, still_, value_width_;
  std::shared_ptr<Product> query_;         // from x, or from the row below
  std::shared_ptr<Product> query_latent_;  // null without
  std::shared_ptr<Norm> query_norm_;
  std::shared_ptr<Product> latent_, wide_;
  std::shared_ptr<Norm> norm_;
};

// The layers of one model share these.
struct SharedTables {
  std::shared_ptr<RotaryAngles> angles;           // null where nothing is turned
  std::shared_ptr<RotaryAngles> windowed_angles;  // of windowed layers
  std::shared_ptr<AttentionBias> bias;

  explicit SharedTables(const DecoderSlice& slice);
};

class DecoderAttention {
 public:
  // Registers its parts in `layer`, the layer with this index.
  DecoderAttention(torch::nn::Module& layer, const DecoderSlice& slice, std::int64_t index,
                   const SharedTables& tables, const at::TensorOptions& options);

  // x [B, S, width] -> [B, S, width]; drops where `trains`. With the bundle's cache, x is of the
  // tokens of its pass, and they see the ones before.
  at::Tensor forward(const at::Tensor& x, const Bundle& bundle, bool trains) const;

 private:
  void AddProducts(torch::nn::Module& layer, const DecoderSpec& spec,
                   const at::TensorOptions& options);
  void AddNorms(torch::nn::Module& layer, const DecoderSpec& spec,
                const at::TensorOptions& options);
  // Queries, keys and values of this rank's heads, [B, S, heads, head width] each, normed.
  std::array<at::Tensor, 3> Project(const at::Tensor& x, const RandomPlace& place) const;
  std::array<at::Tensor, 3> ProjectApart(const at::Tensor& x, const RandomPlace& place) const;
  std::array<at::Tensor, 3> SplitFused(const at::Tensor& fused) const;
  // Turns queries and keys by their positions; [B, heads, S, head width] of all three, and of keys
  // and values those that the cache has with them.
  std::array<at::Tensor, 3> Place(const std::array<at::Tensor, 3>& projected,
                                  const Bundle& bundle) const;
  at::Tensor FindBias(const Bundle& bundle, const at::Tensor& q) const;
  // Attention of all tokens for this rank's heads, or of this rank's tokens for all heads: [B, own
  // tokens, heads * head width] of queries, keys and values as Place returns them.
  at::Tensor MixByHeads(at::Tensor q, at::Tensor k, at::Tensor v, const Bundle& bundle,
                        double dropout) const;
  at::Tensor MixInRing(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const Bundle& bundle, double dropout) const;
  // [B, all heads, own tokens, width] -> [B, own heads, all tokens, width]
  at::Tensor ToOwnHeads(const at::Tensor& of_tokens,
                        const std::vector<sequence_parallel::HeadRange>& shares) const;
  // Says what a token sees of its sample, for this rank's heads; on `like`'s device, of its
  // samples.
  sequence_parallel::AttentionRule MakeRule(const Bundle& bundle, const at::Tensor& like,
                                            double dropout) const;
  // All of it by portions of a sample (parallel/sequence/portion_attention.h).
  at::Tensor AttendInPortions(const at::Tensor& x, const Bundle& bundle, bool trains) const;
  // `tokens` are those that this rank has of a sample.
  sequence_parallel::PortionParts MakePortionParts(const Bundle& bundle, std::int64_t tokens,
                                                   bool trains) const;
  // Returns of keys or values what this rank uses, where it has all heads.
  at::Tensor ChooseHead(const at::Tensor& heads) const;

  const torch::nn::Module* layer_module_;  // which has this
  tensor_parallel::Group group_;
  sequence_parallel::Group sequence_;
  sequence_parallel::HeadShares shares_;
  std::optional<std::int64_t> copied_head_;  // TensorPlan's
  std::int64_t first_head_;  // of those that attention is computed for, among the model's
  std::int64_t own_heads_;   // so many
  QkvLayout layout_;
  QueryKeyNorm query_key_norm_;
  std::int64_t heads_, kv_heads_, head_width_, value_width_;
  std::int64_t layer_;
  double scale_, soft_cap_, attention_dropout_, residual_dropout_;
  bool windowed_;
  std::int64_t window_;  // 0: none
  std::shared_ptr<RotaryAngles> angles_;
  std::shared_ptr<AttentionBias> bias_;
  std::shared_ptr<Product> query_, key_, value_;  // kApart
  std::shared_ptr<Product> qkv_;                  // kConcatenated, kByGroup
  std::unique_ptr<LatentProjection> latent_;      // kLatent
  std::shared_ptr<Product> output_;
  std::shared_ptr<Norm> query_norm_, key_norm_;  // null without
};

}  // namespace ds::models
