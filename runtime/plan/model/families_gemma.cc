// Gemma 1 to 3 (text).

#include "runtime/plan/model/families.h"
#include "runtime/plan/model/layer_kinds.h"

namespace ds::models {
namespace {

constexpr ConfigKey kGemmaKeys[] = {
    Key("head_dim", &DecoderSpec::head_width),
    Key("attention_bias", &DecoderSpec::qkv_bias),
    Key("attention_bias", &DecoderSpec::attention_output_bias),
    Only("use_bidirectional_attention", false),
    Ignored("cache_implementation"),
    Ignored("_sliding_window_pattern"),  // saved next to layer_types, and not read
};
constexpr ConfigKey kGemma1Keys[] = {
    Key("hidden_act", &DecoderSpec::activation),
    Ignored("hidden_activation"),
};
constexpr ConfigKey kGemma2Keys[] = {
    Key("hidden_activation", &DecoderSpec::activation),
    Ignored("hidden_act"),
    Key("query_pre_attn_scalar", &DecoderSpec::query_scale_width, 1e9),
    KeyOrNone("sliding_window", &DecoderSpec::window),
    Ignored("sliding_window_size"),
    KeyOrNone("final_logit_softcapping", &DecoderSpec::logit_soft_cap, 1e9),
};
constexpr ConfigKey kAttentionCap[] = {
    KeyOrNone("attn_logit_softcapping", &DecoderSpec::attention_soft_cap, 1e9),
};
constexpr ConfigKey kIgnoredCap[] = {
    Ignored("attn_logit_softcapping"),  // transformers does not apply it
};

DecoderSpec Gemma() {
  return {.model_type = "gemma",
          .architecture = "GemmaForCausalLM",
          .vocabulary = 256000,
          .width = 3072,
          .layers = 28,
          .heads = 16,
          .kv_heads = 16,
          .head_width = 256,
          .mlp_width = 24576,
          .max_positions = 8192,
          .padding_token = 0,
          .scales_embedding = true,
          .norm = NormKind::kRmsPlusOne,
          .activation = Activation::kGeluTanh,
          .tied_head = true};
}

// Early files have "gelu" but mean its tanh approximation.
void DeriveGemma(ConfigReader&, DecoderSpec* spec) {
  if (spec->activation == Activation::kGeluErf) spec->activation = Activation::kGeluTanh;
}

DecoderSpec Gemma2() {
  DecoderSpec spec = Gemma();
  spec.model_type = "gemma2";
  spec.architecture = "Gemma2ForCausalLM";
  spec.width = 2304;
  spec.layers = 26;
  spec.heads = 8;
  spec.kv_heads = 4;
  spec.mlp_width = 9216;
  spec.norm_position = NormPosition::kAround;
  spec.query_scale_width = 256.0;
  spec.window = 4096;
  spec.logit_soft_cap = 30.0;
  spec.attention_soft_cap = 50.0;
  spec.names.mlp_norm = "pre_feedforward_layernorm";
  return spec;
}

// Every other layer is windowed, beginning with the first.
void DeriveGemma2(ConfigReader& reader, DecoderSpec* spec) {
  SetLayerTypes(spec, [](std::int64_t layer) { return layer % 2 == 0; });
  ReadLayerTypes(reader, spec);
}

DecoderSpec Gemma3() {
  DecoderSpec spec = Gemma2();
  spec.model_type = "gemma3_text";
  spec.architecture = "Gemma3ForCausalLM";
  spec.vocabulary = 262208;
  spec.max_positions = 131072;
  spec.rope.theta = 1e6;
  spec.query_key_norm = QueryKeyNorm::kPerHead;
  spec.logit_soft_cap = 0.0;
  spec.attention_soft_cap = 0.0;
  return spec;
}

// Windowed layers, all but every sixth, rotate their heads with another base.
void DeriveGemma3(ConfigReader& reader, DecoderSpec* spec) {
  const std::int64_t pattern = reader.Int("sliding_window_pattern", 6);
  SetLayerTypes(spec, [&](std::int64_t layer) { return (layer + 1) % pattern != 0; });
  ReadLayerTypes(reader, spec);
  RopeSpec windowed{.theta = reader.Number("rope_local_base_freq", 10000.0, {1e-6, 1e12})};
  spec->rope.theta = reader.Number("rope_theta", spec->rope.theta, {1e-6, 1e12});
  nlohmann::ordered_json full = {{"rope_type", "default"}};
  const auto read = [&](const char* key, const nlohmann::ordered_json& json, RopeSpec rope) {
    return ReadRopeObject(reader, key, json, {}, rope, spec->max_positions);
  };
  const auto both = reader.Object("rope_parameters");
  for (const auto& [name, json] : both.items()) {
    if (json.is_null()) continue;
    if (!json.is_object()) {
      reader.Refuse("'rope_parameters' must hold an object for each of layer_types");
    } else if (name == "full_attention") {
      full = json;
    } else if (name == "sliding_attention") {
      windowed = read("rope_parameters.sliding_attention", json, windowed);
    } else {
      reader.Refuse("'rope_parameters' has \"" + name +
                    "\"; known are full_attention and sliding_attention");
    }
  }
  // transformers applies rope_scaling over the parameters of full attention.
  const auto scaling = reader.Object("rope_scaling");
  if (scaling.contains("type") && !scaling.contains("rope_type")) {
    return reader.Refuse(
        "'rope_scaling' has its kind in 'type', which transformers ignores for this model type: "
        "call it 'rope_type'");
  }
  full.update(scaling);
  spec->rope =
      read(scaling.empty() ? "rope_parameters.full_attention" : "rope_scaling", full, spec->rope);
  spec->windowed_rope = windowed;
}

}  // namespace

std::vector<Family> GemmaFamilies() {
  std::vector<Family> families{
      {.spec = Gemma(), .keys = {kDecoderSizes, kGemmaKeys, kGemma1Keys}, .derive = DeriveGemma},
      {.spec = Gemma2(),
       .keys = {kDecoderSizes, kGemmaKeys, kGemma2Keys, kAttentionCap},
       .derive = DeriveGemma2},
      {.spec = Gemma3(),
       .keys = {kDecoderSizes, kGemmaKeys, kGemma2Keys, kIgnoredCap},
       .rope_keys = {.theta = nullptr},  // its rule reads both
       .derive = DeriveGemma3}};
  for (Family& family : families) family.has_padding_row = true;
  return families;
}

}  // namespace ds::models
