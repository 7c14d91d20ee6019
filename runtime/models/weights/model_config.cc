#include "runtime/models/weights/model_config.h"

#include <algorithm>

#include "runtime/base/files.h"
#include "runtime/base/json_fault.h"
#include "runtime/base/suggest.h"
#include "runtime/plan/model/families.h"

namespace ds::models {
namespace fs = std::filesystem;
namespace {

// Directories that may hold presets: installed next to the program, or in this build's source tree.
std::vector<fs::path> PresetFolders() {
  std::vector<fs::path> folders;
  if (const StatusOr<fs::path> program = FindOwnExecutable(); program.ok()) {
    folders.push_back(program->parent_path().parent_path() / "share/dsrun/configs/models");
  }
  folders.emplace_back(DS_MODEL_PRESETS);
  return folders;
}

// Parses the file `path`; `folder` is the folder of its weights.
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
    if (!fs::exists(file, error) && fs::exists(path / "adapter_config.json", error)) {
      return NotFoundError(model +
                           ": this is a PEFT adapter, not a model: give its base model as " +
                           "--model and this folder as --lora_adapter");
    }
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
  constexpr int kDeepest = 100;  // limit: model descriptions are flat, and printing recurses
  bool too_deep = false;
  const auto keep = [&](int depth, auto, auto&) {
    too_deep = too_deep || depth > kDeepest;
    return depth <= kDeepest;
  };
  try {
    config.json = nlohmann::ordered_json::parse(text, keep);
    if (too_deep) return InvalidArgumentError(file_name + ": the JSON is nested too deep");
  } catch (const nlohmann::json::exception&) {
    return InvalidArgumentError(file_name + ": not valid JSON: " + DescribeJsonFault(text));
  }
  DS_ASSIGN_OR_RETURN(config.decoder, ReadDecoderSpec(config.json, file_name));
  return config;
}

Status CheckSequenceLength(const ModelConfig& config, std::int64_t seq_len) {
  return CheckLength(config.decoder, seq_len);
}

}  // namespace ds::models
