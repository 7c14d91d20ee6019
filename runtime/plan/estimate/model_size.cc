#include "runtime/plan/estimate/model_size.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <utility>

#include "runtime/base/files.h"
#include "runtime/base/json_fault.h"
#include "runtime/base/unique_fd.h"
#include "runtime/checkpoint_format/safetensors_layout.h"
#include "runtime/plan/memory/expert_rules.h"
#include "runtime/plan/memory/stage_partition.h"
#include "runtime/plan/model/count_parameters.h"
#include "runtime/plan/model/families.h"

namespace ds::plan {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{256} << 20;
constexpr char kHead[] = "lm_head.weight";

bool IsFloatingPoint(const std::string& dtype) {
  return dtype.starts_with("F") || dtype.starts_with("BF");
}

// Constant buffers that older versions of transformers stored next to the weights.
bool IsStoredBuffer(const std::string& name) {
  return name.ends_with(".attn.masked_bias") || name.ends_with(".rotary_emb.inv_freq");
}

// Returns the files that an index names, each once.
StatusOr<std::set<std::string>> FilesOfIndex(const fs::path& index) {
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(index, kMaxIndexBytes));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return InvalidArgumentError(index.string() + ": not valid JSON: " + DescribeJsonFault(text));
  }
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return InvalidArgumentError(index.string() + ": no JSON object with a weight_map");
  }
  std::set<std::string> files;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    // Requires a plain file name: an index must not refer to files outside its folder.
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || fs::path(name).filename() != name) {
      return InvalidArgumentError(index.string() + ": weight_map['" + tensor +
                                  "'] is not the name of a file of this folder");
    }
    files.insert(name);
  }
  return files;
}

StatusOr<std::set<std::string>> WeightFiles(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / "model.safetensors", ignored)) {
    return std::set<std::string>{"model.safetensors"};
  }
  const fs::path index = folder / "model.safetensors.index.json";
  if (fs::exists(index, ignored)) return FilesOfIndex(index);
  return NotFoundError(folder.string() + ": there are no safetensors files");
}

StatusOr<checkpoint::SafetensorsLayout> ReadLayout(const fs::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoError(errno, path.string());
  auto layout = checkpoint::ReadSafetensorsLayout(fd.get());
  return layout.ok() ? std::move(layout) : layout.status().WithContext(path.string());
}

StatusOr<nlohmann::ordered_json> ReadConfig(const fs::path& path) {
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  nlohmann::ordered_json config =
      nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (config.is_discarded()) {
    return InvalidArgumentError(path.string() + ": not valid JSON: " + DescribeJsonFault(text));
  }
  if (!config.is_object()) return InvalidArgumentError(path.string() + ": not a JSON object");
  return config;
}

bool HasTiedHead(const nlohmann::ordered_json& config) {
  const auto found = config.find("tie_word_embeddings");
  return found != config.end() && *found == true;
}

}  // namespace

bool IsKnownFamily(const nlohmann::ordered_json& config) {
  const auto found = config.is_object() ? config.find("model_type") : config.end();
  return found != config.end() && found->is_string() && models::IsFamily(found->get<std::string>());
}

StatusOr<ModelSize> SizeOfConfig(const nlohmann::ordered_json& config) {
  // Keys that change no shape are ignored.
  DS_ASSIGN_OR_RETURN(const models::DecoderSpec spec,
                      models::ReadDecoderSpec(config, "", models::UnknownModelKeys::kIgnore));
  DS_ASSIGN_OR_RETURN(const models::ParameterCount count, models::CountParameters(spec));
  return ModelSize{.params = count.all, .largest_layer_params = count.largest_module};
}

StatusOr<ModelSize> SizeOfWeights(const fs::path& folder, bool tied_head) {
  DS_ASSIGN_OR_RETURN(const std::set<std::string> files, WeightFiles(folder));
  ModelSize size;
  std::map<std::string, std::int64_t> modules;  // "model.norm" to its own parameters
  for (const std::string& file : files) {
    DS_ASSIGN_OR_RETURN(const checkpoint::SafetensorsLayout layout, ReadLayout(folder / file));
    for (const auto& [name, tensor] : layout) {
      if ((tied_head && name == kHead) || IsStoredBuffer(name)) continue;
      if (!IsFloatingPoint(tensor.dtype)) {
        if (!name.ends_with(".weight")) continue;  // a mask or a counter
        return UnimplementedError((folder / file).string() + ": tensor '" + name + "' has dtype " +
                                  tensor.dtype + "; quantized weights cannot be counted");
      }
      size.params += tensor.Elements();
      modules[name.substr(0, name.rfind('.'))] += tensor.Elements();
    }
  }
  for (const auto& [module, params] : modules) {
    size.largest_layer_params = std::max(size.largest_layer_params, params);
  }
  return size;
}

StatusOr<ModelSize> ReadModelSize(const fs::path& model) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(model, ignored);
  const fs::path config_path = is_folder ? model / "config.json" : model;
  nlohmann::ordered_json config = nlohmann::ordered_json::object();
  if (!is_folder || fs::exists(config_path, ignored)) {
    DS_ASSIGN_OR_RETURN(config, ReadConfig(config_path));
  }
  if (!is_folder || IsKnownFamily(config)) {
    const StatusOr<ModelSize> size = SizeOfConfig(config);
    return size.ok() ? size : size.status().WithContext(config_path.string());
  }
  return SizeOfWeights(model, HasTiedHead(config));
}

StatusOr<std::vector<pipeline::WeighedBlock>> ReadModelBlocks(const fs::path& model,
                                                              const config::MoeConfig& moe,
                                                              std::int64_t seq_len) {
  std::error_code ignored;
  const fs::path path = fs::is_directory(model, ignored) ? model / "config.json" : model;
  DS_ASSIGN_OR_RETURN(const nlohmann::ordered_json config, ReadConfig(path));
  DS_ASSIGN_OR_RETURN(
      models::DecoderSpec spec,
      models::ReadDecoderSpec(config, path.string(), models::UnknownModelKeys::kIgnore));
  DS_RETURN_IF_ERROR(engine::TakeMoeSection(moe, &spec));
  DS_ASSIGN_OR_RETURN(const auto counts, models::CountBlocks(spec));
  DS_ASSIGN_OR_RETURN(const std::vector<double> work, engine::CountWork(spec, seq_len));
  std::vector<pipeline::WeighedBlock> blocks;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    blocks.push_back({counts[i].name, counts[i].parameters, work[i]});
  }
  return blocks;
}

}  // namespace ds::plan
