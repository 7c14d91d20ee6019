// Llama and the families that differ from it in a norm, a bias or a window.

#include <algorithm>
#include <cmath>

#include "runtime/plan/model/families.h"
#include "runtime/plan/model/layer_kinds.h"

namespace ds::models {
namespace {

constexpr ConfigKey kLlamaSizes[] = {
    KeyOrNone("head_dim", &DecoderSpec::head_width), Key("hidden_act", &DecoderSpec::activation),
    Ignored("pretraining_tp"),  // changes how products are split, not their values
};
constexpr ConfigKey kAttentionBias[] = {
    Key("attention_bias", &DecoderSpec::qkv_bias),
    Key("attention_bias", &DecoderSpec::attention_output_bias),
};
constexpr ConfigKey kMlpBias[] = {Key("mlp_bias", &DecoderSpec::mlp_bias)};
// SmolLM's files have these descriptive keys.
constexpr ConfigKey kLlamaKeys[] = {Ignored("is_llama_config"), Only("rope_interleaved", false)};
constexpr ConfigKey kNoBiases[] = {Only("attention_bias", false), Only("mlp_bias", false)};
constexpr ConfigKey kWindow[] = {KeyOrNone("sliding_window", &DecoderSpec::window)};

DecoderSpec Llama() {
  return {.model_type = "llama",
          .architecture = "LlamaForCausalLM",
          .vocabulary = 32000,
          .width = 4096,
          .layers = 32,
          .heads = 32,
          .mlp_width = 11008,
          .max_positions = 2048};
}

DecoderSpec Mistral() {
  DecoderSpec spec = Llama();
  spec.model_type = "mistral";
  spec.architecture = "MistralForCausalLM";
  spec.kv_heads = 8;
  spec.mlp_width = 14336;
  spec.max_positions = 131072;
  spec.window = 4096;
  return spec;
}

DecoderSpec Mixtral() {
  DecoderSpec spec = Mistral();
  spec.model_type = "mixtral";
  spec.architecture = "MixtralForCausalLM";
  spec.norm_epsilon = 1e-5;
  spec.rope.theta = 1e6;
  spec.window = 0;
  spec.experts = 8;
  spec.experts_per_token = 2;
  spec.has_balance_loss = true;
  spec.balance_loss_scale = 0.001;
  spec.names.mlp = "block_sparse_moe";
  spec.names.gate = "w1";
  spec.names.up = "w3";
  spec.names.down = "w2";
  return spec;
}
constexpr ConfigKey kExperts[] = {
    Key("num_experts_per_tok", &DecoderSpec::experts_per_token),
    Key("output_router_logits", &DecoderSpec::balances_experts),  // transformers then adds the loss
    Key("router_aux_loss_coef", &DecoderSpec::balance_loss_scale, 1e3),
};
constexpr ConfigKey kMixtralKeys[] = {
    Key("num_local_experts", &DecoderSpec::experts),
    Key("num_experts", &DecoderSpec::experts),  // transformers' other name takes precedence
    Only("router_jitter_noise", 0.0),
};

DecoderSpec Qwen2() {
  DecoderSpec spec = Llama();
  spec.model_type = "qwen2";
  spec.architecture = "Qwen2ForCausalLM";
  spec.vocabulary = 151936;
  spec.kv_heads = 32;
  spec.mlp_width = 22016;
  spec.max_positions = 32768;
  spec.window = 4096;
  spec.qkv_bias = true;
  return spec;
}

DecoderSpec Qwen3() {
  DecoderSpec spec = Qwen2();
  spec.model_type = "qwen3";
  spec.architecture = "Qwen3ForCausalLM";
  spec.head_width = 128;
  spec.qkv_bias = false;
  spec.query_key_norm = QueryKeyNorm::kPerHead;
  return spec;
}

DecoderSpec Qwen2Moe() {
  DecoderSpec spec = Qwen2();
  spec.model_type = "qwen2_moe";
  spec.architecture = "Qwen2MoeForCausalLM";
  spec.width = 2048;
  spec.layers = 24;
  spec.heads = 16;
  spec.kv_heads = 16;
  spec.mlp_width = 5632;
  spec.experts = 60;
  spec.experts_per_token = 4;
  spec.expert_width = 1408;
  spec.shared_expert_width = 5632;
  spec.normalises_routes = false;
  spec.has_balance_loss = true;
  spec.balance_loss_scale = 0.001;
  return spec;
}

DecoderSpec Qwen3Moe() {
  DecoderSpec spec = Qwen2Moe();
  spec.model_type = "qwen3_moe";
  spec.architecture = "Qwen3MoeForCausalLM";
  spec.heads = 32;
  spec.kv_heads = 4;
  spec.mlp_width = 6144;
  spec.qkv_bias = false;
  spec.query_key_norm = QueryKeyNorm::kPerHead;
  spec.experts = 128;
  spec.experts_per_token = 8;
  spec.expert_width = 768;
  spec.shared_expert_width = 0;
  return spec;
}
constexpr ConfigKey kQwenExperts[] = {
    Key("num_experts", &DecoderSpec::experts),
    Key("moe_intermediate_size", &DecoderSpec::expert_width),
    Key("norm_topk_prob", &DecoderSpec::normalises_routes),
    Key("decoder_sparse_step", &DecoderSpec::expert_interval),
};
constexpr ConfigKey kQwen2MoeKeys[] = {
    Key("qkv_bias", &DecoderSpec::qkv_bias),
    Key("shared_expert_intermediate_size", &DecoderSpec::shared_expert_width),
};
constexpr ConfigKey kQwen3MoeKeys[] = {Key("num_local_experts", &DecoderSpec::experts)};

DecoderSpec DeepseekV2() {
  DecoderSpec spec = Llama();
  spec.model_type = "deepseek_v2";
  spec.architecture = "DeepseekV2ForCausalLM";
  spec.vocabulary = 102400;
  spec.qkv = QkvLayout::kLatent;
  spec.latent_width = 512;
  spec.query_latent_width = 1536;
  spec.value_width = 128;
  spec.scales_by_rope = true;
  spec.experts = 64;
  spec.expert_width = 1407;
  spec.shared_expert_mix = SharedExpertMix::kAdded;
  spec.normalises_routes = false;
  spec.routes_in_fp32 = true;
  spec.names.shared_expert = "shared_experts";
  return spec;
}
constexpr ConfigKey kDeepseekKeys[] = {
    Ignored("head_dim"),     // transformers derives these
    Ignored("qk_head_dim"),  // from the two below
    Key("v_head_dim", &DecoderSpec::value_width),
    Key("kv_lora_rank", &DecoderSpec::latent_width),
    KeyOrNone("q_lora_rank", &DecoderSpec::query_latent_width),
    Key("hidden_act", &DecoderSpec::activation),
    Key("n_routed_experts", &DecoderSpec::experts),
    Key("num_experts", &DecoderSpec::experts),  // transformers' other name takes precedence
    Key("num_experts_per_tok", &DecoderSpec::experts_per_token),
    Key("moe_intermediate_size", &DecoderSpec::expert_width),
    Key("routed_scaling_factor", &DecoderSpec::route_scale, 1e3),
    Only("norm_topk_prob", false),
    Ignored("pretraining_tp"),
    Ignored("output_router_logits"),  // transformers adds no balance loss to this family's
    Ignored("aux_loss_alpha"),        // loss, with any value of these keys
    Ignored("seq_aux"),
    Ignored("ep_size"),
};

DecoderSpec Phi3() {
  DecoderSpec spec = Llama();
  spec.model_type = "phi3";
  spec.architecture = "Phi3ForCausalLM";
  spec.vocabulary = 32064;
  spec.width = 3072;
  spec.mlp_width = 8192;
  spec.max_positions = 4096;
  spec.norm_epsilon = 1e-5;
  spec.padding_token = 32000;
  spec.qkv = QkvLayout::kConcatenated;
  spec.fused_gate_up = true;
  spec.rope.original_positions = 4096;
  return spec;
}
constexpr ConfigKey kPhi3Keys[] = {
    Key("resid_pdrop", &DecoderSpec::residual_dropout),
    Ignored("embd_pdrop"),  // transformers has no dropout there
    Only("lm_head_bias", false),
    Ignored("interpolate_factor"),
    Ignored("full_attn_mod"),
};

DecoderSpec Olmo2() {
  DecoderSpec spec = Llama();
  spec.model_type = "olmo2";
  spec.architecture = "Olmo2ForCausalLM";
  spec.vocabulary = 50304;
  spec.norm_epsilon = 1e-5;
  spec.norm = NormKind::kRmsWide;
  spec.norm_position = NormPosition::kAfter;
  spec.query_key_norm = QueryKeyNorm::kFullWidth;
  spec.padding_token = 1;
  return spec;
}

DecoderSpec SmolLm3() {
  DecoderSpec spec = Llama();
  spec.model_type = "smollm3";
  spec.architecture = "SmolLM3ForCausalLM";
  spec.vocabulary = 128256;
  spec.width = 2048;
  spec.layers = 36;
  spec.heads = 16;
  spec.kv_heads = 4;
  spec.max_positions = 32768;
  spec.rope.theta = 2e6;
  spec.padding_token = 128004;
  spec.tied_head = true;
  return spec;
}

// Every N-th layer has no positions.
void DeriveSmolLm3(ConfigReader& reader, DecoderSpec* spec) {
  reader.IgnoreKey("max_window_layers");
  const bool uses_window = reader.Bool("use_sliding_window", false);
  if (!uses_window) spec->window = 0;
  const auto interval = static_cast<std::size_t>(reader.Int("no_rope_layer_interval", 4));
  const auto rotary = reader.Numbers("no_rope_layers");
  if (rotary && rotary->size() < static_cast<std::size_t>(spec->layers)) {
    return reader.Refuse("'no_rope_layers' must have an element for each layer");
  }
  std::vector<LayerKind> kinds;
  for (std::size_t i = 0; i < static_cast<std::size_t>(spec->layers); ++i) {
    const bool rotates = rotary ? (*rotary)[i] != 0.0 : (i + 1) % interval != 0;
    kinds.push_back({.windowed = uses_window && !rotates, .rotary = rotates});
  }
  spec->layer_kinds = std::move(kinds);
  ReadLayerTypes(reader, spec);
}

// Layers from max_window_layers on are windowed, if windows are enabled.
void DeriveQwen(ConfigReader& reader, DecoderSpec* spec) {
  if (!reader.Bool("use_sliding_window", false)) spec->window = 0;
  const std::int64_t full_layers = reader.Int("max_window_layers", 28);
  SetLayerTypes(spec, [&](std::int64_t layer) { return spec->window > 0 && layer >= full_layers; });
  ReadLayerTypes(reader, spec);
}

void ReadDenseLayers(ConfigReader& reader, DecoderSpec* spec) {
  for (const double layer : reader.Numbers("mlp_only_layers").value_or(std::vector<double>())) {
    if (layer < 0.0 || layer >= static_cast<double>(spec->layers) || std::floor(layer) != layer) {
      return reader.Refuse("'mlp_only_layers' must have numbers of layers");
    }
    spec->dense_layers.insert(static_cast<std::int64_t>(layer));
  }
}

// Every other layer below max_window_layers is windowed, if windows are enabled.
void DeriveQwen2Moe(ConfigReader& reader, DecoderSpec* spec) {
  ReadDenseLayers(reader, spec);
  reader.IgnoreKey("sliding_window");  // transformers writes 0 without windows
  const bool has_windows = reader.Bool("use_sliding_window", false);
  spec->window = has_windows ? reader.IntOrNone("sliding_window", spec->window) : 0;
  const std::int64_t most = reader.Int("max_window_layers", 28);
  SetLayerTypes(
      spec, [&](std::int64_t layer) { return spec->window > 0 && layer % 2 == 0 && layer < most; });
  ReadLayerTypes(reader, spec);
}

// Derives the width of a head and the number of its rotated elements.
void DeriveLatentHeads(ConfigReader& reader, DecoderSpec* spec) {
  const std::int64_t still = reader.Int("qk_nope_head_dim", 128);
  const std::int64_t turned = reader.Int("qk_rope_head_dim", 64);
  if (turned % 2 != 0) reader.Refuse("'qk_rope_head_dim' must be even");
  if (spec->kv_heads != 0 && spec->kv_heads != spec->heads) {
    reader.Refuse("'num_key_value_heads' must be num_attention_heads: all have their own keys");
  }
  spec->head_width = still + turned;
  double& share = spec->rope.rotated_share;
  share = static_cast<double>(turned) / static_cast<double>(spec->head_width);
  // Rounding must not remove an element.
  if (TurnedWidth(*spec) < turned) share = std::nextafter(share, 1.0);
}

void DeriveDeepseekV2(ConfigReader& reader, DecoderSpec* spec) {
  DeriveLatentHeads(reader, spec);
  spec->shared_expert_width = reader.Int("n_shared_experts", 2) * spec->expert_width;
  const double dense = reader.Number("first_k_dense_replace", 0.0, {0.0, 1e6});
  if (dense != std::floor(dense)) {
    reader.Refuse("'first_k_dense_replace' must be a whole number of layers");
  }
  for (std::int64_t i = 0; i < std::min(static_cast<std::int64_t>(dense), spec->layers); ++i) {
    spec->dense_layers.insert(i);
  }
  if (spec->experts_per_token == 0) reader.Refuse("'num_experts_per_tok' is missing");
  if (reader.Int("moe_layer_freq", 1) != 1) reader.Refuse("'moe_layer_freq' must be 1");
  if (reader.String("scoring_func", "softmax") != "softmax") {
    reader.Refuse("'scoring_func' must be softmax");
  }
  const std::int64_t groups = reader.IntOrNone("n_group", 1);
  const std::int64_t topk = reader.IntOrNone("topk_group", 1);
  const std::string method = reader.String("topk_method", "greedy");
  if (method == "greedy") return;
  if (method != "group_limited_greedy") {
    return reader.Refuse("'topk_method' is \"" + method +
                         "\"; supported are greedy and group_limited_greedy");
  }
  if (groups < 1 || spec->experts % groups != 0 || topk < 1 || topk > groups ||
      spec->experts_per_token > topk * (spec->experts / groups)) {
    return reader.Refuse(
        "'n_group' must divide n_routed_experts, and 'topk_group' of them must have enough "
        "experts");
  }
  spec->route_groups = groups;
  spec->topk_route_groups = topk;
}

// All layers are windowed, if windows are enabled.
void DeriveQwen3Moe(ConfigReader& reader, DecoderSpec* spec) {
  ReadDenseLayers(reader, spec);
  if (!reader.Bool("use_sliding_window", false)) spec->window = 0;
  reader.IgnoreKey("max_window_layers");
}

constexpr ConfigKey kQwenKeys[] = {Only("use_mrope", false)};

}  // namespace

std::vector<Family> LlamaLikeFamilies() {
  const RopeKeys phi3_rope{.rotated_share = "partial_rotary_factor",
                           .original_positions = "original_max_position_embeddings",
                           .yarn_is_longrope = true};
  std::vector<Family> families{
      {.spec = DeepseekV2(),
       .keys = {kDecoderSizes, kAttentionBias, kMlpBias, kDeepseekKeys},
       .derive = DeriveDeepseekV2},
      {.spec = Llama(), .keys = {kDecoderSizes, kLlamaSizes, kAttentionBias, kMlpBias, kLlamaKeys}},
      {.spec = Mistral(), .keys = {kDecoderSizes, kLlamaSizes, kWindow}},
      {.spec = Mixtral(), .keys = {kDecoderSizes, kLlamaSizes, kWindow, kExperts, kMixtralKeys}},
      {.spec = Olmo2(), .keys = {kDecoderSizes, kLlamaSizes, kAttentionBias}},
      {.spec = Phi3(),
       .keys = {kDecoderSizes, kLlamaSizes, kNoBiases, kWindow, kPhi3Keys},
       .rope_keys = phi3_rope},
      {.spec = Qwen2(),
       .keys = {kDecoderSizes, kLlamaSizes, kWindow, kQwenKeys},
       .derive = DeriveQwen},
      {.spec = Qwen2Moe(),
       .keys = {kDecoderSizes, kLlamaSizes, kExperts, kQwenExperts, kQwen2MoeKeys},
       .derive = DeriveQwen2Moe},
      {.spec = Qwen3Moe(),
       .keys = {kDecoderSizes, kLlamaSizes, kAttentionBias, kWindow, kExperts, kQwenExperts,
                kQwen3MoeKeys},
       .derive = DeriveQwen3Moe},
      {.spec = Qwen3(),
       .keys = {kDecoderSizes, kLlamaSizes, kAttentionBias, kWindow},
       .derive = DeriveQwen},
      {.spec = SmolLm3(),
       .keys = {kDecoderSizes, kLlamaSizes, kAttentionBias, kMlpBias, kWindow},
       .derive = DeriveSmolLm3}};
  for (Family& family : families) family.has_padding_row = true;
  return families;
}

}  // namespace ds::models
