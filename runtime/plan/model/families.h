#pragma once

// The table of model families maps the config.json of each family to a DecoderSpec. A row has the
// family's fixed values, transformers' defaults for absent keys, the names of keys and weights, and
// a function for keys that need more than a copy of their value.

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/model/config_reader.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::models {

// A key of config.json and the field that it sets. An absent key leaves the field unchanged.
struct ConfigKey {
  enum class Rule {
    kValue,    // null counts as absent
    kOrNone,   // null sets 0: none, or derived from other keys
    kIgnored,  // changes nothing that is computed here
    kOnly,     // a flag that must equal `only`, or a number that must be 0
  };
  using Field = std::variant<std::monostate, std::int64_t DecoderSpec::*, double DecoderSpec::*,
                             bool DecoderSpec::*, Activation DecoderSpec::*>;
  const char* name;
  Rule rule = Rule::kValue;
  Field field = {};
  double most = 1.0;  // upper limit of a number
  std::variant<bool, double> only = false;
};

constexpr ConfigKey Key(const char* name, ConfigKey::Field field, double most = 1.0) {
  return {.name = name, .field = field, .most = most};
}
constexpr ConfigKey KeyOrNone(const char* name, ConfigKey::Field field, double most = 1.0) {
  return {.name = name, .rule = ConfigKey::Rule::kOrNone, .field = field, .most = most};
}
constexpr ConfigKey Ignored(const char* name) {
  return {.name = name, .rule = ConfigKey::Rule::kIgnored};
}
constexpr ConfigKey Only(const char* name, std::variant<bool, double> value) {
  return {.name = name, .rule = ConfigKey::Rule::kOnly, .only = value};
}

// The keys common to Llama, Gemma and their descendants.
inline constexpr ConfigKey kDecoderSizes[] = {
    Key("vocab_size", &DecoderSpec::vocabulary),
    Key("hidden_size", &DecoderSpec::width),
    Key("intermediate_size", &DecoderSpec::mlp_width),
    Key("num_hidden_layers", &DecoderSpec::layers),
    Key("num_attention_heads", &DecoderSpec::heads),
    KeyOrNone("num_key_value_heads", &DecoderSpec::kv_heads),
    Key("max_position_embeddings", &DecoderSpec::max_positions),
    Key("initializer_range", &DecoderSpec::initializer_range, 1e3),
    Key("rms_norm_eps", &DecoderSpec::norm_epsilon),
    Key("attention_dropout", &DecoderSpec::attention_dropout),
    Key("tie_word_embeddings", &DecoderSpec::tied_head),
};

struct Family {
  DecoderSpec spec;
  std::vector<std::span<const ConfigKey>> keys;
  RopeKeys rope_keys = {};
  bool has_padding_row = false;  // the row of pad_token_id is not trained
  // Sets fields that depend on several keys. Widths and head counts that follow from others are
  // filled in afterwards.
  void (*derive)(ConfigReader& reader, DecoderSpec* spec) = nullptr;
};

// Returns all families, sorted by model_type.
const std::vector<Family>& Families();
std::vector<Family> LlamaLikeFamilies();
std::vector<Family> GemmaFamilies();
std::vector<Family> OlderFamilies();

bool IsFamily(const std::string& model_type);

enum class UnknownModelKeys { kRefuse, kIgnore };

// Reads a config.json. Errors name the key, preceded by `file_name` unless that is empty.
// UNIMPLEMENTED when the family is not known.
StatusOr<DecoderSpec> ReadDecoderSpec(const nlohmann::ordered_json& json,
                                      const std::string& file_name,
                                      UnknownModelKeys unknown = UnknownModelKeys::kRefuse);

}  // namespace ds::models
