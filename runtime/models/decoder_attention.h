#pragma once

// The attention of one layer of a decoder: products, norms of queries and keys, positions, the
// attention itself, and the product behind it.

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/models/block.h"
#include "runtime/models/decoder_slice.h"
#include "runtime/models/latent_projection.h"
#include "runtime/models/layers.h"
#include "runtime/models/norms.h"
#include "runtime/models/rotary_angles.h"
#include "runtime/models/token_places.h"

namespace ds::models {

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
  std::array<at::Tensor, 3> Project(const at::Tensor& x) const;
  std::array<at::Tensor, 3> ProjectApart(const at::Tensor& x) const;
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
  // Returns of keys or values what this rank uses, where it has all heads.
  at::Tensor ChooseHead(const at::Tensor& heads) const;

  tensor_parallel::Group group_;
  sequence_parallel::Group sequence_;
  sequence_parallel::HeadShares shares_;
  std::optional<std::int64_t> copied_head_;  // TensorPlan's
  std::int64_t first_head_;  // of those that attention is computed for, among the model's
  QkvLayout layout_;
  QueryKeyNorm query_key_norm_;
  std::int64_t heads_, kv_heads_, head_width_;
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
