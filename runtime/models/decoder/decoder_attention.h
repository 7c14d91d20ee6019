#pragma once

// The attention of one decoder layer: input projections, norms of queries and keys, position
// embedding, the attention itself, and the output projection.

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
#include "runtime/models/layers/token_positions.h"
#include "runtime/parallel/sequence/chunked_attention.h"
#include "runtime/parallel/tensor/group.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

// LatentProjection: queries, keys and values of multi-head latent attention (DeepSeek-V2,
// https://arxiv.org/abs/2405.04434). The keys and values of all heads are projected up from one
// narrow, normalised row per token. In addition, a few key elements per token are shared by all
// heads. Only these, and as many elements of each query head, get rotary position embedding.
// Queries may be projected up from a narrow row of their own.
//
// Ranks that shard the heads each project up their own heads; every rank computes the narrow rows.
//
// Weights have transformers' layout: the rotated elements of a head come last, and neighbours form
// a pair. The results of this class have the rotated elements first, with the pairs split into two
// halves, as rotary.h expects. The scores are the same because queries and keys have the same
// order.

class LatentProjection {
 public:
  // Registers its submodules in `layer`, under the path of its attention. `spec` has the heads of
  // one of the `ranks`.
  LatentProjection(torch::nn::Module& layer, const DecoderSpec& spec,
                   const tensor_parallel::TensorGroup& ranks, const at::TensorOptions& options);

  // x [B, S, width]. Returns queries and keys [B, S, heads, head width] and values [B, S, heads,
  // value width].
  std::array<at::Tensor, 3> forward(const at::Tensor& x, const RandomPosition& origin) const;

 private:
  // Moves the last turned_ elements of each head to the front, paired as in rotary.h.
  at::Tensor MoveRotatedFirst(const at::Tensor& heads) const;

  tensor_parallel::TensorGroup ranks_;
  std::int64_t heads_, latent_width_, turned_, still_, value_width_;
  std::shared_ptr<Product> query_;         // from x, or from query_latent_'s narrow row
  std::shared_ptr<Product> query_latent_;  // null if there is none
  std::shared_ptr<Norm> query_norm_;
  std::shared_ptr<Product> latent_, wide_;
  std::shared_ptr<Norm> norm_;
};

// Tables shared by all layers of a model.
struct SharedTables {
  std::shared_ptr<RotaryAngles> angles;           // null: no rotary embedding
  std::shared_ptr<RotaryAngles> windowed_angles;  // for windowed layers
  std::shared_ptr<AttentionTerms> terms;

  explicit SharedTables(const DecoderSlice& slice);
};

class DecoderAttention {
 public:
  // Registers its submodules in `layer`, which has this index in the model.
  DecoderAttention(torch::nn::Module& layer, const DecoderSlice& slice, std::int64_t index,
                   const SharedTables& tables, const at::TensorOptions& options);

  // [B, S, width] -> [B, S, width]. Applies dropout if `trains`. If the bundle has a cache, x holds
  // only the tokens of this pass, which also attend to the cached ones.
  at::Tensor forward(const at::Tensor& x, const Bundle& bundle, bool trains) const;

 private:
  void AddProducts(torch::nn::Module& layer, const DecoderSpec& spec,
                   const at::TensorOptions& options);
  void AddNorms(torch::nn::Module& layer, const DecoderSpec& spec,
                const at::TensorOptions& options);
  // Returns normalised queries, keys and values of this rank's heads, [B, S, heads, head width]
  // each.
  std::array<at::Tensor, 3> Project(const at::Tensor& x, const RandomPosition& origin) const;
  std::array<at::Tensor, 3> ProjectApart(const at::Tensor& x, const RandomPosition& origin) const;
  std::array<at::Tensor, 3> SplitFused(const at::Tensor& fused) const;
  // Applies rotary embedding to queries and keys. Returns queries, keys and values as [B, heads, S,
  // head width]; with a cache, keys and values include the cached ones.
  std::array<at::Tensor, 3> RotateAndCache(const std::array<at::Tensor, 3>& projected,
                                           const Bundle& bundle) const;
  // Attention over all tokens for this rank's heads (MixByHeads), or of this rank's tokens for all
  // heads (MixInRing). Takes queries, keys and values as RotateAndCache returns them. Returns [B,
  // own tokens, heads * head width].
  at::Tensor MixByHeads(at::Tensor q, at::Tensor k, at::Tensor v, const Bundle& bundle,
                        double dropout) const;
  // Attention of full samples over their own tokens, [B, heads, S, value width].
  at::Tensor MixSamples(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const Bundle& bundle, double dropout) const;
  at::Tensor MixInRing(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const Bundle& bundle, double dropout) const;
  // [B, all heads, own tokens, width] -> [B, own heads, all tokens, width]
  at::Tensor ToOwnHeads(const at::Tensor& of_tokens,
                        const std::vector<sequence_parallel::HeadRange>& shares) const;
  // Returns the rule for which tokens of its sample, of `tokens` tokens, a token attends to, for
  // this rank's heads.
  kernels::AttentionRule MakeRule(const Bundle& bundle, std::int64_t tokens, c10::Device device,
                                  double dropout) const;
  // Computes the result of forward, one chunk of a sample at a time (FPDT,
  // parallel/sequence/chunked_attention.h).
  at::Tensor AttendInChunks(const at::Tensor& x, const Bundle& bundle, bool trains) const;
  // `tokens` is the number of tokens that this rank has of each sample.
  sequence_parallel::ChunkFunctions MakeChunkFunctions(const Bundle& bundle, std::int64_t tokens,
                                                       bool trains) const;
  // Selects the key or value head that this rank uses if every rank computes all heads.
  at::Tensor ChooseHead(const at::Tensor& heads) const;

  const torch::nn::Module* layer_module_;  // the layer that owns this object
  tensor_parallel::TensorGroup group_;
  sequence_parallel::SequenceGroup sequence_;
  sequence_parallel::HeadShares shares_;
  std::optional<std::int64_t> copied_head_;  // TensorPlan's
  std::int64_t first_head_;  // index in the model of the first head that attention is computed for
  std::int64_t own_heads_;   // the number of those heads
  QkvLayout layout_;
  QueryKeyNorm query_key_norm_;
  std::int64_t heads_, kv_heads_, head_width_, value_width_;
  std::int64_t layer_;
  double scale_, soft_cap_, attention_dropout_, residual_dropout_;
  bool windowed_;
  std::int64_t window_;  // 0: no window
  std::shared_ptr<RotaryAngles> angles_;
  std::shared_ptr<AttentionTerms> terms_;
  std::shared_ptr<Product> query_, key_, value_;  // kApart
  std::shared_ptr<Product> qkv_;                  // kConcatenated, kByGroup
  std::unique_ptr<LatentProjection> latent_;      // kLatent
  std::shared_ptr<Product> output_;
  std::shared_ptr<Norm> query_norm_, key_norm_;  // null if there are none
};

}  // namespace ds::models
