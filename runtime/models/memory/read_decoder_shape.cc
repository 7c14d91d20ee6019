#include "runtime/models/memory/read_decoder_shape.h"

#include <nlohmann/json.hpp>
#include <string>

namespace ds::models {
namespace {

// Reads keys with transformers' defaults, and remembers the first that makes no sense.
class Keys {
 public:
  explicit Keys(const nlohmann::ordered_json& config) : config_(config) {}

  std::int64_t Int(const char* key, std::int64_t absent) {
    constexpr std::int64_t kMost = 1 << 30;
    const auto found = config_.find(key);
    if (found == config_.end() || found->is_null()) return absent;
    if (found->is_number_integer() && *found >= 1 && *found <= kMost) return *found;
    Refuse(key, "a whole number of at least 1", *found);
    return 1;
  }
  double Number(const char* key, double absent) {
    const auto found = config_.find(key);
    if (found == config_.end() || found->is_null()) return absent;
    if (found->is_number()) return *found;
    Refuse(key, "a number", *found);
    return absent;
  }
  bool Bool(const char* key, bool absent) {
    const auto found = config_.find(key);
    if (found == config_.end() || found->is_null()) return absent;
    if (found->is_boolean()) return *found;
    Refuse(key, "true or false", *found);
    return absent;
  }
  const Status& status() const { return status_; }

 private:
  void Refuse(const char* key, const char* wanted, const nlohmann::ordered_json& value) {
    if (!status_.ok()) return;
    status_ = InvalidArgumentError("'" + std::string(key) + "' must be " + wanted + ", not " +
                                   value.dump());
  }

  const nlohmann::ordered_json& config_;
  Status status_;
};

DecoderShape ReadGpt2(Keys& keys) {
  DecoderShape shape{.vocabulary = keys.Int("vocab_size", 50257),
                     .width = keys.Int("n_embd", 768),
                     .layers = keys.Int("n_layer", 12),
                     .heads = keys.Int("n_head", 12),
                     .learned_positions = keys.Int("n_positions", 1024),
                     .layer_norms = true,
                     .qkv_bias = true,
                     .output_bias = true,
                     .mlp_bias = true,
                     .tied_head = keys.Bool("tie_word_embeddings", true),
                     .embedding_dropout = keys.Number("embd_pdrop", 0.1),
                     .residual_dropout = keys.Number("resid_pdrop", 0.1),
                     .attention_dropout = keys.Number("attn_pdrop", 0.1)};
  shape.kv_heads = shape.heads;
  shape.head_width = shape.width / shape.heads;
  shape.mlp_width = keys.Int("n_inner", 4 * shape.width);
  return shape;
}

DecoderShape ReadLlama(Keys& keys) {
  DecoderShape shape{.vocabulary = keys.Int("vocab_size", 32000),
                     .width = keys.Int("hidden_size", 4096),
                     .layers = keys.Int("num_hidden_layers", 32),
                     .heads = keys.Int("num_attention_heads", 32),
                     .mlp_width = keys.Int("intermediate_size", 11008),
                     .gated_mlp = true,
                     .qkv_bias = keys.Bool("attention_bias", false),
                     .mlp_bias = keys.Bool("mlp_bias", false),
                     .tied_head = keys.Bool("tie_word_embeddings", false),
                     .attention_dropout = keys.Number("attention_dropout", 0.0)};
  shape.output_bias = shape.qkv_bias;
  shape.kv_heads = keys.Int("num_key_value_heads", shape.heads);
  shape.head_width = keys.Int("head_dim", shape.width / shape.heads);
  return shape;
}

}  // namespace

StatusOr<DecoderShape> ReadDecoderShape(const nlohmann::ordered_json& config) {
  const auto type = config.is_object() ? config.find("model_type") : config.end();
  const bool is_named = type != config.end() && type->is_string();
  Keys keys(config);
  DecoderShape shape;
  if (is_named && *type == "gpt2") {
    shape = ReadGpt2(keys);
  } else if (is_named && *type == "llama") {
    shape = ReadLlama(keys);
  } else {
    return UnimplementedError("model_type " + (is_named ? type->dump() : "that is missing") +
                              ": what its blocks keep of a micro-batch is not known");
  }
  DS_RETURN_IF_ERROR(keys.status());
  return shape;
}

}  // namespace ds::models
