#include "runtime/plan/model/families.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace ds::models {
namespace {

// Keys of every config.json that describe the file, the tokenizer or text generation.
constexpr const char* kDescriptiveKeys[] = {"model_type",
                                            "architectures",
                                            "_name_or_path",
                                            "name_or_path",
                                            "auto_map",
                                            "transformers_version",
                                            "dtype",
                                            "torch_dtype",
                                            "use_cache",
                                            "bos_token_id",
                                            "eos_token_id",
                                            "pad_token_id",
                                            "sep_token_id",
                                            "decoder_start_token_id",
                                            "tokenizer_class",
                                            "id2label",
                                            "label2id",
                                            "problem_type",
                                            "finetuning_task",
                                            "task_specific_params",
                                            "prefix",
                                            "return_dict",
                                            "output_attentions",
                                            "output_hidden_states",
                                            "torchscript",
                                            "use_bfloat16",
                                            "gradient_checkpointing",
                                            "chunk_size_feed_forward",
                                            "is_encoder_decoder",
                                            "is_decoder",
                                            "attn_implementation",
                                            "_attn_implementation",
                                            "_attn_implementation_autoset",
                                            "max_length",
                                            "min_length",
                                            "do_sample",
                                            "early_stopping",
                                            "num_beams",
                                            "temperature",
                                            "top_k",
                                            "top_p",
                                            "typical_p",
                                            "repetition_penalty",
                                            "length_penalty",
                                            "no_repeat_ngram_size",
                                            "num_return_sequences",
                                            "unsloth_version",
                                            "unsloth_fixed"};

Activation ReadActivation(ConfigReader& reader, const std::string& key, Activation absent) {
  static const std::map<std::string, Activation> kNames = {
      {"gelu_new", Activation::kGeluTanh},  {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh}, {"gelu", Activation::kGeluErf},
      {"relu", Activation::kRelu},          {"silu", Activation::kSilu},
      {"swish", Activation::kSilu}};
  const std::string name = reader.String(key, "");
  if (name.empty()) return absent;
  const auto found = kNames.find(name);
  if (found != kNames.end()) return found->second;
  reader.Refuse("'" + key + "' is \"" + name +
                "\"; supported are gelu_new, gelu_pytorch_tanh, gelu_fast, gelu, relu and silu");
  return absent;
}

void CheckOnly(ConfigReader& reader, const ConfigKey& key) {
  const std::string name = key.name;
  if (const bool* flag = std::get_if<bool>(&key.only)) {
    const bool value = reader.Bool(name, *flag);
    if (value == *flag) return;
    reader.Refuse("'" + name + "' " + (value ? "true" : "false") + " is not supported");
  } else if (reader.Number(name, 0.0, {}) != 0.0) {
    reader.Refuse("'" + name + "' other than 0 is not supported");
  }
}

// Reads the value of one key into its field.
struct FieldReader {
  ConfigReader& reader;
  const ConfigKey& key;
  DecoderSpec* spec;

  void operator()(std::monostate) const {}
  void operator()(std::int64_t DecoderSpec::*field) const {
    std::int64_t& value = spec->*field;
    value = is_or_none() ? reader.IntOrNone(key.name, value) : reader.Int(key.name, value);
  }
  void operator()(double DecoderSpec::*field) const {
    double& value = spec->*field;
    const ConfigReader::Range range{0.0, key.most};
    value = is_or_none() ? reader.NumberOrNone(key.name, value, range)
                         : reader.Number(key.name, value, range);
  }
  void operator()(bool DecoderSpec::*field) const {
    spec->*field = reader.Bool(key.name, spec->*field);
  }
  void operator()(Activation DecoderSpec::*field) const {
    spec->*field = ReadActivation(reader, key.name, spec->*field);
  }
  bool is_or_none() const { return key.rule == ConfigKey::Rule::kOrNone; }
};

void ReadKey(ConfigReader& reader, const ConfigKey& key, DecoderSpec* spec) {
  if (key.rule == ConfigKey::Rule::kIgnored) return reader.IgnoreKey(key.name);
  if (key.rule == ConfigKey::Rule::kOnly) return CheckOnly(reader, key);
  std::visit(FieldReader{reader, key, spec}, key.field);
}

// Returns a family's name for a field.
std::string NameOf(const Family& family, ConfigKey::Field field) {
  for (const auto& keys : family.keys) {
    for (const ConfigKey& key : keys) {
      if (key.field == field) return "'" + std::string(key.name) + "'";
    }
  }
  return "";
}

void CheckHeads(ConfigReader& reader, const Family& family, const DecoderSpec& spec) {
  const std::string heads = NameOf(family, &DecoderSpec::heads);
  const std::string head_width = NameOf(family, &DecoderSpec::head_width);
  if (head_width.empty() && spec.width % spec.heads != 0) {
    reader.Refuse(heads + " must divide " + NameOf(family, &DecoderSpec::width));
  }
  if (spec.heads % spec.kv_heads != 0) {
    const std::string kv_heads = NameOf(family, &DecoderSpec::kv_heads);
    reader.Refuse((kv_heads.empty() ? "'num_kv_heads'" : kv_heads) + " must divide " + heads);
  }
}

void CheckExperts(ConfigReader& reader, const Family& family, const DecoderSpec& spec) {
  constexpr std::int64_t kMostExperts = 100'000;  // the config lists a value for each
  if (spec.experts == 0) return;
  const std::string experts = NameOf(family, &DecoderSpec::experts);
  if (spec.experts > kMostExperts) {
    reader.Refuse(experts + " must be at most " + std::to_string(kMostExperts));
  }
  if (spec.experts_per_token > spec.experts) {
    reader.Refuse(NameOf(family, &DecoderSpec::experts_per_token) + " must be at most " + experts +
                  ", " + std::to_string(spec.experts));
  }
}

void CheckRope(ConfigReader& reader, const DecoderSpec& spec, const RopeSpec& rope) {
  const std::int64_t pairs = RotatedPairs(rope, spec.head_width);
  if (2 * pairs > spec.head_width) reader.Refuse("'head_dim' must be even for rotary embeddings");
  const auto factors = static_cast<std::size_t>(pairs);
  if (rope.scaling == RopeSpec::Scaling::kLongRope &&
      (rope.short_factors.size() != factors || rope.long_factors.size() != factors)) {
    reader.Refuse("'short_factor' and 'long_factor' of longrope must have " +
                  std::to_string(pairs) + " elements, one per pair of a head's elements");
  }
  const auto is_no_factor = [](double factor) { return !(factor > 0.0); };
  for (const auto* list : {&rope.short_factors, &rope.long_factors}) {
    if (std::any_of(list->begin(), list->end(), is_no_factor)) {
      reader.Refuse("'short_factor' and 'long_factor' of longrope must be above 0");
    }
  }
}

// Each layer's description is held in memory, even by a process that only estimates.
void CheckLayers(ConfigReader& reader, const Family& family, DecoderSpec* spec) {
  constexpr std::int64_t kMostLayers = 100'000;
  if (spec->layers <= kMostLayers) return;
  reader.Refuse(NameOf(family, &DecoderSpec::layers) + " must be at most " +
                std::to_string(kMostLayers));
  spec->layers = 1;
}

// Reads the row of the table that transformers does not train; a negative index counts from the
// end.
void ReadPadding(const nlohmann::ordered_json& json, ConfigReader& reader, DecoderSpec* spec) {
  if (const auto found = json.find("pad_token_id"); found != json.end()) {
    spec->padding_token.reset();
    if (found->is_number_integer()) spec->padding_token = found->get<std::int64_t>();
  }
  if (!spec->padding_token) return;
  if (*spec->padding_token < 0) *spec->padding_token += spec->vocabulary;
  if (*spec->padding_token >= 0 && *spec->padding_token < spec->vocabulary) return;
  reader.Refuse("'pad_token_id' is outside the vocabulary of " + std::to_string(spec->vocabulary) +
                " tokens");
}

DecoderSpec ReadFamily(ConfigReader& reader, const Family& family) {
  DecoderSpec spec = family.spec;
  for (const auto& keys : family.keys) {
    for (const ConfigKey& key : keys) ReadKey(reader, key, &spec);
  }
  CheckLayers(reader, family, &spec);
  if (family.derive != nullptr) family.derive(reader, &spec);
  if (spec.kv_heads == 0) spec.kv_heads = spec.heads;
  if (spec.head_width == 0) spec.head_width = std::max<std::int64_t>(spec.width / spec.heads, 1);
  if (spec.mlp_width == 0) spec.mlp_width = 4 * spec.width;
  CheckHeads(reader, family, spec);
  CheckExperts(reader, family, spec);
  if (spec.positions != Positions::kRotary) return spec;
  if (family.rope_keys.theta != nullptr) {
    spec.rope = ReadRope(reader, family.rope_keys, spec.rope, spec.max_positions);
  }
  CheckRope(reader, spec, spec.rope);
  if (spec.windowed_rope) CheckRope(reader, spec, *spec.windowed_rope);
  return spec;
}

const Family* FindFamily(const std::string& model_type) {
  const auto found = std::find_if(
      Families().begin(), Families().end(),
      [&](const Family& candidate) { return candidate.spec.model_type == model_type; });
  return found == Families().end() ? nullptr : &*found;
}

std::string ListFamilies() {
  std::string list;
  for (const Family& family : Families()) {
    const bool is_last = &family == &Families().back();
    list += (list.empty() ? "" : is_last ? " and " : ", ") + family.spec.model_type;
  }
  return list;
}

}  // namespace

const std::vector<Family>& Families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> families;
    for (auto& some : {LlamaLikeFamilies(), GemmaFamilies(), OlderFamilies()}) {
      families.insert(families.end(), some.begin(), some.end());
    }
    std::sort(families.begin(), families.end(), [](const Family& a, const Family& b) {
      return a.spec.model_type < b.spec.model_type;
    });
    return families;
  }();
  return all;
}

bool IsFamily(const std::string& model_type) { return FindFamily(model_type) != nullptr; }

StatusOr<DecoderSpec> ReadDecoderSpec(const nlohmann::ordered_json& json,
                                      const std::string& file_name, UnknownModelKeys unknown) {
  const std::string where = file_name.empty() ? "" : file_name + ": ";
  if (!json.is_object()) return InvalidArgumentError(where + "not a JSON object");
  ConfigReader reader(json, file_name);
  for (const char* key : kDescriptiveKeys) reader.IgnoreKey(key);
  const std::string model_type = reader.String("model_type", "");
  DS_RETURN_IF_ERROR(reader.status());
  const Family* family = FindFamily(model_type);
  if (family == nullptr) {
    return UnimplementedError(where + "model_type \"" + model_type +
                              "\" is not supported; supported are " + ListFamilies());
  }
  DecoderSpec spec = ReadFamily(reader, *family);
  if (family->has_padding_row) ReadPadding(json, reader, &spec);
  DS_RETURN_IF_ERROR(unknown == UnknownModelKeys::kRefuse ? reader.Finish() : reader.status());
  return spec;
}

}  // namespace ds::models
