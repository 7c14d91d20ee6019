#include "cli/estimate/model_size.h"

#include "runtime/base/files.h"
#include "runtime/models/spec/families.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
StatusOr<nlohmann::ordered_json> ReadConfig(const fs::path& path) {
  DS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  nlohmann::ordered_json config =
      nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return InvalidArgumentError(path.string() + ": not a JSON object");
  return config;
}

bool HasTiedHead(const nlohmann::ordered_json& config) {
  const auto found = config.find("tie_word_embeddings");
  return found != config.end() && *found == true;
}

}  // namespace

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

StatusOr<std::vector<models::BlockCount>> ReadModelBlocks(const fs::path& model) {
  std::error_code ignored;
  const fs::path path = fs::is_directory(model, ignored) ? model / "config.json" : model;
  DS_ASSIGN_OR_RETURN(const nlohmann::ordered_json config, ReadConfig(path));
  const auto spec = models::ReadDecoderSpec(config, path.string(), models::UnknownKeys::kIgnore);
  if (!spec.ok()) return spec.status();
  return models::CountBlocks(*spec);
}

}  // namespace ds::cli
