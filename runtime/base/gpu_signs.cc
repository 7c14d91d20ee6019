#include "runtime/base/gpu_signs.h"

#include <algorithm>
#include <sstream>
#include <system_error>
#include <utility>

namespace ds {

namespace fs = std::filesystem;

std::vector<fs::path> ListCudaPluginPaths(const fs::path& dsrank) {
  return {dsrank.parent_path() / kCudaPluginFile,
          dsrank.parent_path() / "../lib" / kCudaPluginFile};
}

bool HasNvidiaDriver(const fs::path& root) {
  std::error_code ignored;
  return fs::exists(root / "dev/nvidiactl", ignored) || fs::exists(root / "dev/dxg", ignored);
}

GpuSigns FindGpuSigns(const fs::path& dsrank, const std::string& library_path,
                      std::optional<std::string> visible_devices) {
  std::vector<fs::path> candidates = ListCudaPluginPaths(dsrank);
  std::istringstream folders(library_path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty()) candidates.push_back(fs::path(folder) / kCudaPluginFile);
  }
  const bool plugin =
      std::any_of(candidates.begin(), candidates.end(), [](const fs::path& candidate) {
        std::error_code ignored;
        return fs::exists(candidate, ignored);
      });
  return {
      .driver = HasNvidiaDriver(), .plugin = plugin, .visible_devices = std::move(visible_devices)};
}

bool FindGpus(const GpuSigns& signs) {
  const bool hidden = signs.visible_devices &&
                      (signs.visible_devices->empty() || signs.visible_devices->front() == '-');
  return signs.driver && signs.plugin && !hidden;
}

}  // namespace ds
