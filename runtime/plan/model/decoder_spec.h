#pragma once

// DecoderSpec: describes the computation of a decoder and the names of its weights, for all
// families.
//
// Each Hugging Face family is a row of a table (families.h) that maps its config.json to a
// DecoderSpec. One implementation (models/decoder) builds and runs it. Free of LibTorch, so that
// `dsrun estimate` counts from the same description.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/expert_gate_config.h"
#include "runtime/plan/model/rope_spec.h"

namespace ds::models {

// The following enums list the variants of each component of a decoder.

enum class Activation { kGeluTanh, kGeluErf, kRelu, kSilu };

enum class NormKind {
  kLayer,       // LayerNorm
  kRms,         // x over its root mean square, rounded to x's dtype, times the weight
  kRmsWide,     // rounded after the multiplication by the weight
  kRmsPlusOne,  // like kRmsWide, times one plus the weight, which starts at 0
};

// The location of a layer's norms. x is the residual stream, f attention or MLP.
enum class NormPosition {
  kBefore,    // x + f(norm(x))
  kAfter,     // x + norm(f(x))
  kAround,    // x + norm'(f(norm(x)))
  kAfterSum,  // norm(x + f(x))
};

enum class Residual {
  kSequential,       // the MLP reads the output of attention
  kParallel,         // both read x, each through its own norm
  kParallelOneNorm,  // both read x through one norm
};

enum class QkvLayout {
  kApart,         // one weight each
  kConcatenated,  // all queries, all keys, all values
  kByGroup,       // per key head: its queries, its key, its value
  kLatent,        // K and V are projected up from one narrow row per token (decoder_attention.h)
};

enum class QueryKeyNorm { kNone, kPerHead, kFullWidth };

// SharedExpertMix combines the output of the shared expert, which receives all tokens, with that of
// the routed experts.
enum class SharedExpertMix {
  kAdded,
  kGated,     // added, times a sigmoid of a linear projection
  kWeighted,  // both weighted by a softmax of a projection (residual experts, arXiv 2201.05596)
};

enum class Positions {
  kNone,
  kLearned,
  kRotary,
  kAlibi,         // arXiv 2108.12409
  kAlibiRounded,  // slopes and products in bf16, and scaled as the scores are
};

// Properties that may differ between layers.
struct LayerKind {
  bool windowed = false;
  bool rotary = true;
};

// The names of a decoder's weights. Names of weights that a decoder lacks are unused.
// A dot separates a module from its children; the children of a module with an empty name are
// direct children of the layer.
struct WeightNames {
  const char* base = "model";     // prefix of everything except the head's matrix
  const char* layers = "layers";  // in the base; the layer's number follows
  const char* tokens = "embed_tokens";
  const char* positions = "embed_positions";
  const char* embedding_norm = "word_embeddings_layernorm";
  const char* final_norm = "norm";
  const char* head = "lm_head";
  const char* attention = "self_attn";
  const char* query = "q_proj";
  const char* key = "k_proj";
  const char* value = "v_proj";
  const char* qkv = "qkv_proj";
  const char* attention_output = "o_proj";
  // Latent projections (decoder_attention.h) use these.
  const char* query_latent = "q_a_proj";
  const char* query_latent_norm = "q_a_layernorm";
  const char* query_wide = "q_b_proj";
  const char* latent = "kv_a_proj_with_mqa";
  const char* latent_norm = "kv_a_layernorm";
  const char* latent_wide = "kv_b_proj";
  const char* query_norm = "q_norm";
  const char* key_norm = "k_norm";
  const char* mlp = "mlp";
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* gate_up = "gate_up_proj";
  const char* down = "down_proj";
  // A layer with experts has these in its MLP; the expert's number follows `experts`.
  const char* router = "gate";
  const char* experts = "experts";
  const char* shared_expert = "shared_expert";
  const char* shared_expert_gate = "shared_expert_gate";  // or the module that weights both outputs
  // A sublayer with a single norm uses the first name.
  const char* attention_norm = "input_layernorm";
  const char* attention_norm_after = "post_attention_layernorm";
  const char* mlp_norm = "post_attention_layernorm";
  const char* mlp_norm_after = "post_feedforward_layernorm";
};

struct DecoderSpec {
  std::string model_type;    // from config.json
  std::string architecture;  // the transformers class that loads it

  std::int64_t vocabulary = 0;
  std::int64_t width = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;     // of the queries
  std::int64_t kv_heads = 0;  // of keys and values; divides `heads`
  std::int64_t head_width = 0;
  std::int64_t mlp_width = 0;
  std::int64_t max_positions = 0;

  Positions positions = Positions::kRotary;
  std::int64_t first_position = 0;        // kLearned: the table row of position 0
  RopeSpec rope;                          // kRotary
  std::optional<RopeSpec> windowed_rope;  // of windowed layers, if different

  std::optional<std::int64_t> padding_token;  // its row starts at 0; trained by the head only
  bool embedding_norm = false;
  bool scales_embedding = false;  // by the square root of the width
  double embedding_dropout = 0.0;

  NormKind norm = NormKind::kRms;
  NormPosition norm_position = NormPosition::kBefore;
  Residual residual = Residual::kSequential;
  bool final_norm = true;
  double norm_epsilon = 1e-6;
  double residual_dropout = 0.0;  // of the outputs of attention and MLP

  QkvLayout qkv = QkvLayout::kApart;
  bool qkv_bias = false;                // kLatent: of the down-projections
  std::int64_t latent_width = 0;        // kLatent: of the row from which K and V are projected
  std::int64_t query_latent_width = 0;  // of the row from which Q is projected; 0: from x
  std::int64_t value_width = 0;         // of one head of V; 0: head_width
  bool attention_output_bias = false;
  QueryKeyNorm query_key_norm = QueryKeyNorm::kNone;
  bool scales_scores = true;        // divides them by the square root of query_scale_width
  double query_scale_width = 0.0;   // 0: head_width
  bool scales_by_layer = false;     // also divides them by one plus the layer's index
  bool scales_by_rope = false;      // also multiplies them by the squared RoPE magnitude
  double attention_soft_cap = 0.0;  // c in c tanh(score / c); 0: none
  double attention_dropout = 0.0;
  std::int64_t window = 0;             // of windowed layers: the tokens a token attends to; 0: all
  std::vector<LayerKind> layer_kinds;  // empty: all layers are windowed and rotary

  bool gated_mlp = true;
  bool fused_gate_up = false;  // one weight: first the gate, then up
  bool mlp_bias = false;
  Activation activation = Activation::kSilu;
  std::int64_t experts = 0;  // per layer, in place of its MLP; 0: no experts
  std::int64_t experts_per_token = 0;
  std::int64_t expert_width = 0;         // 0: mlp_width
  std::int64_t shared_expert_width = 0;  // of an additional expert for all tokens; 0: none
  SharedExpertMix shared_expert_mix = SharedExpertMix::kGated;
  bool normalises_routes = true;        // the weights of a token's experts sum to 1
  double route_scale = 1.0;             // multiplies these weights
  std::int64_t route_groups = 1;        // groups of neighbouring experts
  std::int64_t topk_route_groups = 1;   // a token's experts come from the N most probable groups
  bool routes_in_fp32 = false;          // computes the router's product in fp32 for any model dtype
  std::int64_t expert_interval = 1;     // every N-th layer has experts
  std::set<std::int64_t> dense_layers;  // these layers have an MLP instead
  bool has_balance_loss = false;        // transformers' models of the family have one
  bool balances_experts = false;        // adds the expert balance loss to the loss
  double balance_loss_scale = 0.0;
  // A gate with expert capacity replaces the model's own rule; it is not part of a model folder.
  std::optional<config::ExpertGateConfig> expert_gate = {};

  bool tied_head = false;  // the head shares the embedding's matrix
  double logit_soft_cap = 0.0;

  bool weights_are_in_out = false;  // [in, out] in attention and MLP (transformers' Conv1D)
  double initializer_range = 0.02;
  bool shrinks_residual_init = false;  // output projections start smaller with more layers

  WeightNames names;

  LayerKind KindOf(std::int64_t layer) const {
    if (layer_kinds.empty()) return {.windowed = true, .rotary = true};
    return layer_kinds.at(static_cast<std::size_t>(layer));
  }
  bool HasExperts(std::int64_t layer) const {
    return experts > 0 && !dense_layers.contains(layer) && (layer + 1) % expert_interval == 0;
  }
};

// Adds an MLP as wide as an expert to each layer with experts, mixed with them by a softmax:
// deepspeed.moe.layer.MoE calls this residual. No Hugging Face folder has its weights. Requires
// experts and no shared expert.
void AddResidualMlp(DecoderSpec* spec);

// Returns the width of one expert.
inline std::int64_t WidthOfExpert(const DecoderSpec& spec) {
  return spec.expert_width > 0 ? spec.expert_width : spec.mlp_width;
}

inline std::int64_t WidthOfValue(const DecoderSpec& spec) {
  return spec.value_width > 0 ? spec.value_width : spec.head_width;
}

// Returns the number of a head's elements that RoPE rotates.
inline std::int64_t TurnedWidth(const DecoderSpec& spec) {
  return 2 * RotatedPairs(spec.rope, spec.head_width);
}

// Fails when the model has fewer positions than `tokens`. The error names the limit.
Status CheckLength(const DecoderSpec& spec, std::int64_t tokens);

// Returns the factor that multiplies the attention scores of a layer.
double AttentionScale(const DecoderSpec& spec, std::int64_t layer);

}  // namespace ds::models
