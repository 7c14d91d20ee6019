#include "runtime/plan/estimate/model_size.h"

#include "runtime/base/files.h"
#include "runtime/base/json_fault.h"
#include "runtime/plan/memory/expert_rules.h"
#include "runtime/plan/memory/stage_cut.h"
#include "runtime/plan/model/count_parameters.h"
#include "runtime/plan/model/families.h"

namespace ds::plan {
namespace {

namespace fs = std::filesystem;
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
  DS_ASSIGN_OR_RETURN(models::DecoderSpec spec,
                      models::ReadDecoderSpec(config, path.string(), models::UnknownKeys::kIgnore));
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
