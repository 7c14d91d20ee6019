#pragma once

// DecoderSpec: what a decoder computes and what its weights are called, whatever its family.
//
// The families of Hugging Face are rows of a table (families.h), which say how their config.json
// fills it; one implementation (models/decoder.h) builds and runs it. Without LibTorch, so that
// `dsrun estimate` counts by the same description.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/expert_gate_config.h"
#include "runtime/plan/model/decoder_kinds.h"
#include "runtime/plan/model/rope_spec.h"
#include "runtime/plan/model/weight_names.h"

namespace ds::models {

struct DecoderSpec {
  std::string model_type;    // of config.json
  std::string architecture;  // the class of transformers that loads it

  std::int64_t vocabulary = 0;
  std::int64_t width = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;     // of the queries
  std::int64_t kv_heads = 0;  // of keys and values; divides `heads`
  std::int64_t head_width = 0;
  std::int64_t mlp_width = 0;
  std::int64_t max_positions = 0;

  Positions positions = Positions::kRotary;
  std::int64_t first_position = 0;        // kLearned: the row of the table that position 0 has
  RopeSpec rope;                          // kRotary
  std::optional<RopeSpec> windowed_rope;  // that of windowed layers, where it is another

  std::optional<std::int64_t> padding_token;  // its row starts at 0 and learns as a head only
  bool embedding_norm = false;
  bool scales_embedding = false;  // by the root of the width
  double embedding_dropout = 0.0;

  NormKind norm = NormKind::kRms;
  NormPlace norm_place = NormPlace::kBefore;
  Residual residual = Residual::kInTurn;
  bool final_norm = true;
  double norm_epsilon = 1e-6;
  double residual_dropout = 0.0;  // of what attention and MLP add

  QkvLayout qkv = QkvLayout::kApart;
  bool qkv_bias = false;                // kLatent: of the products that narrow
  std::int64_t latent_width = 0;        // kLatent: of the row that keys and values come from
  std::int64_t query_latent_width = 0;  // of a row that queries come from; 0: they come from x
  std::int64_t value_width = 0;         // of a head of the values; 0: the heads' width
  bool attention_output_bias = false;
  QueryKeyNorm query_key_norm = QueryKeyNorm::kNone;
  bool scales_scores = true;        // divides them by the root of query_scale_width
  double query_scale_width = 0.0;   // 0: the heads' width
  bool scales_by_layer = false;     // divides them by one plus the layer's index, too
  bool scales_by_rope = false;      // multiplies them by the square of the rope's magnitude, too
  double attention_soft_cap = 0.0;  // c in c tanh(score / c); 0: none
  double attention_dropout = 0.0;
  std::int64_t window = 0;             // of windowed layers: how many tokens a token sees; 0: all
  std::vector<LayerKind> layer_kinds;  // empty: all are windowed, and rotary

  bool gated_mlp = true;
  bool fused_gate_up = false;  // one weight: all of the gate, all of the other
  bool mlp_bias = false;
  Activation activation = Activation::kSilu;
  std::int64_t experts = 0;  // in a layer, in place of its MLP; 0: there are none
  std::int64_t experts_per_token = 0;
  std::int64_t expert_width = 0;         // 0: the MLP's
  std::int64_t shared_expert_width = 0;  // of one that all tokens go through, too; 0: none
  SharedExpertMix shared_expert_mix = SharedExpertMix::kGated;
  bool normalises_routes = true;        // the weights of a token's experts add up to 1
  double route_scale = 1.0;             // they are multiplied by it
  std::int64_t route_groups = 1;        // of neighbouring experts
  std::int64_t kept_route_groups = 1;   // a token's experts are of so many, the most probable ones
  bool routes_in_fp32 = false;          // the router's product, whatever the model's dtype
  std::int64_t expert_interval = 1;     // one layer of so many has experts
  std::set<std::int64_t> dense_layers;  // these have an MLP nevertheless
  bool has_balance_loss = false;        // transformers' models of the family have one
  bool balances_experts = false;        // adds the experts' balance loss to the loss
  double balance_loss_scale = 0.0;
  // The gate that routes by capacity, in place of the model's own rule; no part of a folder.
  std::optional<config::ExpertGateConfig> expert_gate = {};

  bool tied_head = false;  // the head's matrix is the embedding's
  double logit_soft_cap = 0.0;

  bool weights_are_in_out = false;  // [in, out] in attention and MLP (transformers' Conv1D)
  double initializer_range = 0.02;
  bool shrinks_residual_init = false;  // what adds to x starts smaller with the number of layers

  WeightNames names;

  LayerKind KindOf(std::int64_t layer) const {
    if (layer_kinds.empty()) return {.windowed = true, .rotary = true};
    return layer_kinds.at(static_cast<std::size_t>(layer));
  }
  bool HasExperts(std::int64_t layer) const {
    return experts > 0 && !dense_layers.contains(layer) && (layer + 1) % expert_interval == 0;
  }
};

// Puts an MLP as wide as an expert next to each layer's experts, mixed with them by a softmax: what
// deepspeed.moe.layer.MoE calls residual. No folder of Hugging Face's has its weights. Requires
// experts, and no expert that all tokens go through already.
void AddResidualMlp(DecoderSpec* spec);

// Returns how wide one of a layer's experts is.
inline std::int64_t WidthOfExpert(const DecoderSpec& spec) {
  return spec.expert_width > 0 ? spec.expert_width : spec.mlp_width;
}

inline std::int64_t WidthOfValue(const DecoderSpec& spec) {
  return spec.value_width > 0 ? spec.value_width : spec.head_width;
}

// Returns how many of a head's elements are turned by its position.
inline std::int64_t TurnedWidth(const DecoderSpec& spec) {
  return 2 * RotatedPairs(spec.rope, spec.head_width);
}

// OK where a sequence of so many tokens has a position for each. The error says what would fit.
Status CheckLength(const DecoderSpec& spec, std::int64_t tokens);

// Returns what the scores of a layer's attention are multiplied by.
double AttentionScale(const DecoderSpec& spec, std::int64_t layer);

}  // namespace ds::models
