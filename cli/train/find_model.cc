#include "cli/train/find_model.h"

#include "runtime/base/files.h"
#include "runtime/base/suggest.h"

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

StatusOr<config::ModelFacts> FindModelFacts(const std::string& model, const ShareFolder& share) {
  DS_ASSIGN_OR_RETURN(const fs::path path, FindModel(model, share));
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  const StatusOr<std::string> text =
      ReadFile(is_folder ? path / "config.json" : path, kMaxConfigBytes);
  if (!text.ok()) return text.status().WithContext("--model " + model);
  return config::ReadModelFacts(*text, model);
}

}  // namespace ds::cli
