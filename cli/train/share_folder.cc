#include "cli/train/share_folder.h"

#include <algorithm>

#include "runtime/base/files.h"

namespace ds::cli {

namespace fs = std::filesystem;

StatusOr<ShareFolder> ShareFolder::OfThisProgram() {
  DS_ASSIGN_OR_RETURN(const fs::path program, FindOwnExecutable());
  return ShareFolder(program.parent_path().parent_path() / "share" / "dsrun");
}

namespace {

std::vector<std::string> NamesIn(const fs::path& folder, const char* extension = ".json") {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == extension) names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::vector<std::string> ShareFolder::Presets() const { return NamesIn(root_ / "configs/models"); }

std::vector<std::string> ShareFolder::Recipes() const { return NamesIn(root_ / "configs/recipes"); }

std::vector<std::string> ShareFolder::ManualPages() const {
  return NamesIn(root_ / "manual", ".md");
}

}  // namespace ds::cli
