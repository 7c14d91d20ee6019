#include "cli/train/share_folder.h"

#include <algorithm>

#include "runtime/base/files.h"

namespace ds::cli {

namespace fs = std::filesystem;

StatusOr<ShareFolder> ShareFolder::OfThisProgram() {
  DS_ASSIGN_OR_RETURN(const fs::path program, FindOwnExecutable());
  return ShareFolder(program.parent_path().parent_path() / "share" / "dsrun");
}

std::vector<std::string> ShareFolder::Presets() const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root_ / "configs/models", error)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace ds::cli
