#include "runtime/models/model_config.h"

#include <algorithm>

#include "runtime/base/config_limit.h"
#include "runtime/base/files.h"
#include "runtime/base/suggest.h"
#include "runtime/models/config_reader.h"
#include "runtime/models/family_config.h"

namespace ds::models {
namespace fs = std::filesystem;
namespace {

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
  if (const StatusOr<fs::path> program = OwnExecutable(); program.ok()) {
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
  for (const char* key : kDescriptiveKeys) reader.Harmless(key);
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
