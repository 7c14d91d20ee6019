#include "cli/train/find_model.h"

#include "runtime/base/files.h"
#include "runtime/base/suggest.h"
#include "runtime/models/spec/families.h"
#include "runtime/models/spec/tensor_plan.h"

namespace ds::cli {

namespace fs = std::filesystem;

StatusOr<fs::path> FindModel(const std::string& model, const ShareFolder& share) {
  std::error_code ignored;
  if (fs::exists(model, ignored)) return fs::path(model);
  const fs::path preset = share.preset(model);
  if (fs::exists(preset, ignored)) return preset;
  return NotFoundError("--model " + model + ": no such folder, config.json or preset" +
                       DidYouMean(model, share.Presets()));
}

namespace {

// Its config.json.
StatusOr<std::string> ReadModelText(const std::string& model, const ShareFolder& share) {
  DS_ASSIGN_OR_RETURN(const fs::path path, FindModel(model, share));
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  StatusOr<std::string> text = ReadFile(is_folder ? path / "config.json" : path, kMaxConfigBytes);
  if (!text.ok()) return text.status().WithContext("--model " + model);
  return text;
}

}  // namespace

StatusOr<config::ModelFacts> FindModelFacts(const std::string& model, const ShareFolder& share) {
  DS_ASSIGN_OR_RETURN(const std::string text, ReadModelText(model, share));
  return config::ReadModelFacts(text, model);
}

Status CheckTensorRanks(const std::string& model, int tensor, const ShareFolder& share) {
  if (tensor == 1) return OkStatus();
  DS_ASSIGN_OR_RETURN(const std::string text, ReadModelText(model, share));
  const auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto spec = models::ReadDecoderSpec(json, "", models::UnknownKeys::kIgnore);
  Status status = spec.status();
  if (spec.ok()) status = models::TensorPlan::Create(*spec, /*part=*/0, tensor).status();
  return status.ok() ? status : status.WithContext("--model " + model);
}

}  // namespace ds::cli
