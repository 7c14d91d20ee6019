#include "runtime/process/available_memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "runtime/process/cgroups.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

// Reads the line "MemAvailable:   123 kB".
std::optional<std::uint64_t> ReadMemAvailable(const fs::path& root) {
  std::ifstream file(root / "proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    std::uint64_t kibibytes = 0;
    if (words >> key >> kibibytes && key == "MemAvailable:") return kibibytes * 1024;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> ReadAvailableMemory(const fs::path& root) {
  const std::optional<std::uint64_t> of_host = ReadMemAvailable(root);
  const std::optional<std::uint64_t> of_groups = ReadAvailableInGroups(FindOwnCgroups(root));
  if (!of_host || !of_groups) return of_host ? of_host : of_groups;
  return std::min(*of_host, *of_groups);
}

}  // namespace ds
