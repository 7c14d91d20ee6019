#pragma once

// ModelConfig: the description of a model, a Hugging Face config.json, read and checked.
//
// A key that is absent has transformers' default. A value that changes the mathematics is honoured
// or refused by name; a key that nobody here knows is refused too, for it may be such a one.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/status.h"

namespace ds::models {

enum class Activation { kGeluTanh, kGeluErf, kRelu, kSilu };

struct Gpt2Config {
  std::int64_t width = 768;       // n_embd
  std::int64_t layers = 12;       // n_layer
  std::int64_t heads = 12;        // n_head; divides width
  std::int64_t mlp_width = 3072;  // n_inner, or 4 * width
  Activation activation = Activation::kGeluTanh;
  double norm_epsilon = 1e-5;
  double residual_dropout = 0.1, embedding_dropout = 0.1, attention_dropout = 0.1;
  bool scale_attention = true;            // by 1/sqrt(head width)
  bool scale_attention_by_layer = false;  // by 1/(layer + 1) too
};

// Rotary position embedding: the frequencies, and how they are stretched for longer contexts.
struct RopeConfig {
  enum class Scaling { kNone, kLinear, kLlama3 };
  double theta = 10000.0;
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;
  double low_frequency_factor = 1.0, high_frequency_factor = 4.0;  // kLlama3
  double original_positions = 8192;                                // kLlama3
};

struct LlamaConfig {
  std::int64_t width = 4096;       // hidden_size
  std::int64_t layers = 32;        // num_hidden_layers
  std::int64_t heads = 32;         // num_attention_heads
  std::int64_t kv_heads = 32;      // num_key_value_heads; divides heads
  std::int64_t head_width = 128;   // head_dim
  std::int64_t mlp_width = 11008;  // intermediate_size
  Activation activation = Activation::kSilu;
  double norm_epsilon = 1e-6;
  double attention_dropout = 0.0;
  bool attention_bias = false;
  bool mlp_bias = false;
  RopeConfig rope;
};

struct ModelConfig {
  std::string model_type;  // "gpt2" or "llama"
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;
  double initializer_range = 0.02;
  bool tied_head = false;  // the head's matrix is the embedding's
  std::variant<Gpt2Config, LlamaConfig> family;

  std::filesystem::path folder;  // where the weights would be; empty for a preset
  nlohmann::ordered_json json;   // the file as it was read
};

// `model` is a folder with a config.json, a path to such a file, or the name of a preset.
StatusOr<ModelConfig> ReadModelConfig(const std::string& model);

// The same from JSON text; `file_name` is for messages.
StatusOr<ModelConfig> ParseModelConfig(std::string_view text, const std::string& file_name);

// Names of the presets (configs/models), sorted.
std::vector<std::string> ModelPresets();

// OK when the model can be run on sequences of `seq_len` tokens.
Status CheckSequenceLength(const ModelConfig& config, std::int64_t seq_len);

}  // namespace ds::models
