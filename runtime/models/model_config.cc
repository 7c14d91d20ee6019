#include "runtime/models/model_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/suggest.h"

namespace ds::models {
namespace fs = std::filesystem;
namespace {

// Reads the keys of one config.json with defaults and checks, and remembers the first error, so
// that a family's parser is a plain list of its keys. Every key must be read or be listed as
// harmless.
class ConfigReader {
 public:
  // `json` is an object and outlives the reader.
  ConfigReader(const nlohmann::ordered_json& json, std::string file_name)
      : json_(json), file_name_(std::move(file_name)) {}

  // A whole number from 1 to 2^31 - 1. An explicit null counts as absent, here and below.
  std::int64_t Int(const std::string& key, std::int64_t absent);
  // A finite number from `least` to `most`.
  double Number(const std::string& key, double absent, double least, double most);
  double Probability(const std::string& key, double absent) { return Number(key, absent, 0, 1); }
  bool Bool(const std::string& key, bool absent);
  std::string String(const std::string& key, const std::string& absent);
  // The object under `key`, or an empty one.
  nlohmann::ordered_json Object(const std::string& key);

  // Marks a key as known whatever its value: it does not change the training mathematics.
  void IgnoreKey(const std::string& key) { known_.insert(key); }

  // Records "FILE: `message`" unless an earlier error is there.
  void Refuse(const std::string& message);

  // The first error, or the first key that nobody asked for.
  Status Finish() const;

 private:
  const nlohmann::ordered_json* Find(const std::string& key);

  const nlohmann::ordered_json& json_;
  std::string file_name_;
  std::set<std::string> known_;
  Status status_;
};

const nlohmann::ordered_json* ConfigReader::Find(const std::string& key) {
  known_.insert(key);
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

void ConfigReader::Refuse(const std::string& message) {
  if (status_.ok()) status_ = InvalidArgumentError(file_name_ + ": " + message);
}

std::int64_t ConfigReader::Int(const std::string& key, std::int64_t absent) {
  const auto* value = Find(key);
  if (value == nullptr) return absent;
  const auto most = std::numeric_limits<std::int32_t>::max();
  if (!value->is_number_integer() || *value < 1 || *value > most) {
    Refuse("'" + key + "' must be a whole number from 1 to " + std::to_string(most) + ", not " +
           value->dump());
    return absent;
  }
  return value->get<std::int64_t>();
}

double ConfigReader::Number(const std::string& key, double absent, double least, double most) {
  const auto* value = Find(key);
  if (value == nullptr) return absent;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= least && number <= most)) {
    Refuse("'" + key + "' must be a number from " + nlohmann::json(least).dump() + " to " +
           nlohmann::json(most).dump() + ", not " + value->dump());
    return absent;
  }
  return number;
}

bool ConfigReader::Bool(const std::string& key, bool absent) {
  const auto* value = Find(key);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) Refuse("'" + key + "' must be true or false, not " + value->dump());
  return value->is_boolean() ? value->get<bool>() : absent;
}

std::string ConfigReader::String(const std::string& key, const std::string& absent) {
  const auto* value = Find(key);
  if (value == nullptr) return absent;
  if (!value->is_string()) Refuse("'" + key + "' must be a string, not " + value->dump());
  return value->is_string() ? value->get<std::string>() : absent;
}

nlohmann::ordered_json ConfigReader::Object(const std::string& key) {
  const auto* value = Find(key);
  if (value == nullptr) return nlohmann::ordered_json::object();
  if (!value->is_object()) Refuse("'" + key + "' must be an object, not " + value->dump());
  return value->is_object() ? *value : nlohmann::ordered_json::object();
}

Status ConfigReader::Finish() const {
  if (!status_.ok()) return status_;
  for (const auto& item : json_.items()) {
    if (known_.contains(item.key())) continue;
    const std::vector<std::string> known(known_.begin(), known_.end());
    return InvalidArgumentError(file_name_ + ": '" + item.key() +
                                "' is not a key known for this model type" +
                                DidYouMean(item.key(), known) +
                                " (it may change the mathematics, so it is not ignored; remove it "
                                "if the model does not need it)");
  }
  return OkStatus();
}

// Keys of every config.json that describe the file, the tokenizer or text generation.
constexpr const char* kDescriptiveKeys[] = {"model_type",
                                            "architectures",
                                            "_name_or_path",
                                            "name_or_path",
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

// Where presets may lie: installed beside the program, or the source folder of this build.
std::vector<fs::path> PresetFolders() {
  std::vector<fs::path> folders;
  if (const StatusOr<fs::path> program = FindOwnExecutable(); program.ok()) {
    folders.push_back(program->parent_path().parent_path() / "share/dsrun/configs/models");
  }
  folders.emplace_back(DS_MODEL_PRESETS);
  return folders;
}

// Parses the file `path`; `folder` is where its weights would be.
StatusOr<ModelConfig> ReadConfigFile(const fs::path& path, const fs::path& folder) {
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  DS_ASSIGN_OR_RETURN(ModelConfig config, ParseModelConfig(text, path.string()));
  config.folder = folder;
  return config;
}

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

// Reads `json`, the object found under `key`, over what `rope` says.
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

// Each family's parser fills the whole ModelConfig except `folder` and `json`; errors stay in the
// reader.
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
    reader.IgnoreKey(key);  // heads other than the language model's, and an old name
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
  reader.IgnoreKey("pretraining_tp");  // how the products are split, not what they are
  config->family = llama;
}

}  // namespace

std::vector<std::string> ModelPresets() {
  std::vector<std::string> names;
  for (const fs::path& folder : PresetFolders()) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

StatusOr<ModelConfig> ReadModelConfig(const std::string& model) {
  const fs::path path = model;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const fs::path file = path / "config.json";
    if (!fs::exists(file, error)) {
      return NotFoundError(model + ": the model folder has no config.json");
    }
    return ReadConfigFile(file, path);
  }
  if (fs::exists(path, error)) {
    return ReadConfigFile(path, path.has_parent_path() ? path.parent_path() : fs::path("."));
  }
  const std::vector<std::string> presets = ModelPresets();
  if (std::find(presets.begin(), presets.end(), model) != presets.end()) {
    for (const fs::path& folder : PresetFolders()) {
      const fs::path file = folder / (model + ".json");
      if (fs::exists(file, error)) return ReadConfigFile(file, fs::path());
    }
  }
  std::string list;
  for (const std::string& name : presets) list += (list.empty() ? "" : ", ") + name;
  return NotFoundError("model '" + model + "': no such folder, config.json or preset (presets: " +
                       list + ")" + DidYouMean(model, presets));
}

StatusOr<ModelConfig> ParseModelConfig(std::string_view text, const std::string& file_name) {
  ModelConfig config;
  try {
    config.json = nlohmann::ordered_json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    return InvalidArgumentError(file_name + ": not valid JSON: " + error.what());
  }
  if (!config.json.is_object()) return InvalidArgumentError(file_name + ": not a JSON object");
  ConfigReader reader(config.json, file_name);
  for (const char* key : kDescriptiveKeys) reader.IgnoreKey(key);
  config.model_type = reader.String("model_type", "");
  if (config.model_type == "gpt2") {
    ParseGpt2(reader, &config);
  } else if (config.model_type == "llama") {
    ParseLlama(reader, &config);
  } else {
    reader.Refuse("model_type \"" + config.model_type +
                  "\" is not supported; supported are gpt2 and llama");
  }
  DS_RETURN_IF_ERROR(reader.Finish());
  return config;
}

Status CheckSequenceLength(const ModelConfig& config, std::int64_t seq_len) {
  if (seq_len >= 1 && seq_len <= config.max_positions) return OkStatus();
  return InvalidArgumentError("a sequence of " + std::to_string(seq_len) +
                              " tokens does not fit the model, which has " +
                              std::to_string(config.max_positions) + " positions");
}

}  // namespace ds::models
