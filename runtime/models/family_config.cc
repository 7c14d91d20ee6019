#include "runtime/models/family_config.h"

#include <map>

namespace ds::models {
namespace {

Activation ReadActivation(ConfigReader& reader, const std::string& key, const std::string& absent) {
  static const std::map<std::string, Activation> kNames = {
      {"gelu_new", Activation::kGeluTanh},  {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh}, {"gelu", Activation::kGeluErf},
      {"relu", Activation::kRelu},          {"silu", Activation::kSilu},
      {"swish", Activation::kSilu}};
  const std::string name = reader.String(key, absent);
  const auto found = kNames.find(name);
  if (found != kNames.end()) return found->second;
  reader.Refuse("'" + key + "' is \"" + name +
                "\"; supported are gelu_new, gelu_pytorch_tanh, gelu_fast, gelu, relu and silu");
  return Activation::kGeluTanh;
}

double ReadEpsilon(ConfigReader& reader, const std::string& key, double absent) {
  return reader.Number(key, absent, 0.0, 1.0);
}

// The object `json` found under `key` describes a rotary embedding.
RopeConfig ReadRope(ConfigReader& reader, const std::string& key, RopeConfig rope,
                    const nlohmann::ordered_json& json) {
  ConfigReader inner(json, "'" + key + "'");
  rope.theta = inner.Number("rope_theta", rope.theta, 1e-6, 1e12);
  const std::string type = inner.String("rope_type", inner.String("type", "default"));
  if (type == "linear" || type == "llama3") {
    rope.scaling = type == "linear" ? RopeConfig::Scaling::kLinear : RopeConfig::Scaling::kLlama3;
    rope.factor = inner.Number("factor", 1.0, 1.0, 1e6);
  } else if (type != "default") {
    inner.Refuse("rope_type \"" + type +
                 "\" is not supported; supported are default, linear and llama3");
  }
  if (type == "llama3") {
    rope.low_frequency_factor = inner.Number("low_freq_factor", 1.0, 1e-6, 1e6);
    rope.high_frequency_factor = inner.Number("high_freq_factor", 4.0, 1e-6, 1e6);
    rope.original_positions = inner.Number("original_max_position_embeddings", 8192, 1, 1e12);
    if (rope.high_frequency_factor <= rope.low_frequency_factor) {
      inner.Refuse("high_freq_factor must be greater than low_freq_factor");
    }
  }
  if (Status status = inner.Finish(); !status.ok()) reader.Refuse(status.message());
  return rope;
}

}  // namespace

void ParseGpt2(ConfigReader& reader, ModelConfig* config) {
  Gpt2Config gpt2;
  config->vocab_size = reader.Int("vocab_size", 50257);
  config->max_positions = reader.Int("n_positions", 1024);
  config->initializer_range = reader.Number("initializer_range", 0.02, 0.0, 1e3);
  config->tied_head = reader.Bool("tie_word_embeddings", true);
  gpt2.width = reader.Int("n_embd", 768);
  gpt2.layers = reader.Int("n_layer", 12);
  gpt2.heads = reader.Int("n_head", 12);
  gpt2.mlp_width = reader.Int("n_inner", 4 * gpt2.width);
  gpt2.activation = ReadActivation(reader, "activation_function", "gelu_new");
  gpt2.norm_epsilon = ReadEpsilon(reader, "layer_norm_epsilon", 1e-5);
  gpt2.residual_dropout = reader.Probability("resid_pdrop", 0.1);
  gpt2.embedding_dropout = reader.Probability("embd_pdrop", 0.1);
  gpt2.attention_dropout = reader.Probability("attn_pdrop", 0.1);
  gpt2.scale_attention = reader.Bool("scale_attn_weights", true);
  gpt2.scale_attention_by_layer = reader.Bool("scale_attn_by_inverse_layer_idx", false);
  if (gpt2.width % gpt2.heads != 0) reader.Refuse("'n_head' must divide 'n_embd'");
  for (const char* key : {"reorder_and_upcast_attn", "add_cross_attention"}) {
    if (reader.Bool(key, false)) reader.Refuse("'" + std::string(key) + "' true is not supported");
  }
  for (const char* key : {"n_ctx", "summary_activation", "summary_first_dropout",
                          "summary_proj_to_labels", "summary_type", "summary_use_proj"}) {
    reader.Harmless(key);  // heads other than the language model's, and an old name
  }
  config->family = gpt2;
}

void ParseLlama(ConfigReader& reader, ModelConfig* config) {
  LlamaConfig llama;
  config->vocab_size = reader.Int("vocab_size", 32000);
  config->max_positions = reader.Int("max_position_embeddings", 2048);
  config->initializer_range = reader.Number("initializer_range", 0.02, 0.0, 1e3);
  config->tied_head = reader.Bool("tie_word_embeddings", false);
  llama.width = reader.Int("hidden_size", 4096);
  llama.layers = reader.Int("num_hidden_layers", 32);
  llama.heads = reader.Int("num_attention_heads", 32);
  llama.kv_heads = reader.Int("num_key_value_heads", llama.heads);
  llama.mlp_width = reader.Int("intermediate_size", 11008);
  llama.activation = ReadActivation(reader, "hidden_act", "silu");
  llama.norm_epsilon = ReadEpsilon(reader, "rms_norm_eps", 1e-6);
  llama.attention_dropout = reader.Probability("attention_dropout", 0.0);
  llama.attention_bias = reader.Bool("attention_bias", false);
  llama.mlp_bias = reader.Bool("mlp_bias", false);
  llama.head_width = reader.Int("head_dim", std::max<std::int64_t>(llama.width / llama.heads, 1));
  if (llama.heads % llama.kv_heads != 0) {
    reader.Refuse("'num_key_value_heads' must divide 'num_attention_heads'");
  }
  if (llama.head_width % 2 != 0) reader.Refuse("'head_dim' must be even for rotary embeddings");
  // Older files name the base and the scaling apart, newer ones in one object.
  llama.rope.theta = reader.Number("rope_theta", 10000.0, 1e-6, 1e12);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    llama.rope = ReadRope(reader, key, llama.rope, reader.Object(key));
  }
  reader.Harmless("pretraining_tp");  // how the products are split, not what they are
  config->family = llama;
}

}  // namespace ds::models
