#include "runtime/plan/memory/known_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/plan/model/count_parameters.h"

namespace ds::models {

Status CheckMemoryIsKnown(const DecoderSpec& spec) {
  const bool gelu =
      spec.activation == Activation::kGeluTanh || spec.activation == Activation::kGeluErf;
  const std::pair<bool, const char*> unknown[] = {
      {spec.qkv == QkvLayout::kLatent && spec.attention_dropout > 0.0,
       "dropout of attention weights with latent keys"},
      {spec.norm_position != NormPosition::kBefore || !spec.final_norm, "norms at these places"},
      {spec.residual != Residual::kSequential, "attention and MLP side by side"},
      {spec.qkv == QkvLayout::kByGroup && spec.heads != spec.kv_heads,
       "queries of several heads between their keys"},
      {spec.attention_soft_cap != 0.0 || spec.logit_soft_cap != 0.0, "soft caps"},
      {spec.query_key_norm == QueryKeyNorm::kFullWidth, "norms of full queries"},
      {spec.norm == NormKind::kRmsWide || spec.norm == NormKind::kRmsPlusOne,
       "norms with products in fp32"},
      {spec.scales_embedding, "embeddings that are scaled"},
      {spec.gated_mlp ? spec.activation != Activation::kSilu : !gelu, "an MLP of this kind"},
  };
  for (const auto& [present, what] : unknown) {
    if (!present) continue;
    return UnimplementedError("the memory of a model of type '" + spec.model_type +
                              "' is not known: it has " + what);
  }
  return OkStatus();
}

Status CheckCountable(const DecoderSpec& spec, const MicroBatch& batch) {
  DS_RETURN_IF_ERROR(CountParameters(spec).status());
  // An upper bound of a layer's values per token.
  constexpr double kMost = static_cast<double>(std::int64_t{1} << 60);
  const auto samples = static_cast<double>(batch.samples);
  const auto length = static_cast<double>(batch.seq_len);
  const auto values =
      static_cast<double>(spec.width + spec.heads * spec.head_width + spec.mlp_width);
  const double of_token = 64.0 * values + 32.0 * length * static_cast<double>(spec.heads);
  const double bytes = samples * length * of_token * static_cast<double>(spec.layers + 2) *
                       std::max(1.0, batch.expert_load);
  if (bytes < kMost) return OkStatus();
  return InvalidArgumentError("a micro-batch of " + std::to_string(batch.samples) + " x " +
                              std::to_string(batch.seq_len) +
                              " tokens makes more bytes of activations than can be counted");
}

}  // namespace ds::models
