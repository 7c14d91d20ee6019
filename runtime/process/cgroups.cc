#include "runtime/process/cgroups.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/process/mount_table.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

// In v1 a number near 2^63 means "no limit".
constexpr std::uint64_t kUnlimitedV1 = std::uint64_t{1} << 62;

// The mounts as seen below `root`.
std::vector<Mount> ReadMounts(const fs::path& root) {
  std::ifstream file(root / "proc/self/mountinfo");
  std::string text;
  std::getline(file, text, '\0');
  std::vector<Mount> mounts = ParseMountTable(text);
  for (Mount& mount : mounts) mount.point = root / fs::path(mount.point).relative_path();
  return mounts;
}

bool HasWord(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == word) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

// Returns the folder of `group` in the hierarchy; empty when the mount does not show it.
fs::path FindFolder(const Mount& mount, std::string group) {
  if (mount.root != "/") {
    if (!group.starts_with(mount.root)) return {};
    group.erase(0, mount.root.size());
    if (!group.empty() && group.front() != '/') return {};  // "/job" is not above "/jobs"
  }
  const fs::path relative = fs::path(group).relative_path();
  if (!relative.empty() && *relative.begin() == "..") return {};
  return relative.empty() ? fs::path(mount.point) : mount.point / relative;
}

std::optional<std::uint64_t> ReadNumber(const fs::path& file) {
  std::uint64_t value = 0;
  return std::ifstream(file) >> value ? std::optional(value) : std::nullopt;
}

// Returns the value of `key` in a file of "key value" lines.
std::optional<std::uint64_t> ReadValue(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    std::uint64_t value = 0;
    if (words >> word >> value && word == key) return value;
  }
  return std::nullopt;
}

// Calls visit(folder) for the group and its ancestors, up to the mounted one.
template <typename Visit>
void ForEachLevel(fs::path group, const fs::path& top, Visit visit) {
  while (true) {
    visit(group);
    if (group == top || !group.has_parent_path() || group.parent_path() == group) return;
    group = group.parent_path();
  }
}

void TakeSmaller(std::optional<std::uint64_t> value, std::optional<std::uint64_t>* smallest) {
  if (value) *smallest = std::min(*value, smallest->value_or(*value));
}

// Returns the remainder of a limit.
std::uint64_t LeftOf(std::uint64_t limit, std::optional<std::uint64_t> used,
                     std::uint64_t of_files) {
  const std::uint64_t taken = used.value_or(0) - std::min(used.value_or(0), of_files);
  return limit - std::min(limit, taken);
}

// Returns the bytes of active and inactive file pages. The kernel reclaims both before it kills a
// process.
std::uint64_t ReadFilePages(const fs::path& stat, const std::string& prefix) {
  return ReadValue(stat, prefix + "inactive_file").value_or(0) +
         ReadValue(stat, prefix + "active_file").value_or(0);
}

// MemoryFiles holds the file names of one cgroup version.
struct MemoryFiles {
  const char* limit;
  const char* used;         // includes the groups below
  const char* stat_prefix;  // prefix of the counts that include the groups below
};
constexpr MemoryFiles kFilesV1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_"};
constexpr MemoryFiles kFilesV2 = {"memory.max", "memory.current", ""};

std::uint64_t ReadAvailableUnder(std::uint64_t limit, const fs::path& group,
                                 const MemoryFiles& files) {
  return LeftOf(limit, ReadNumber(group / files.used),
                ReadFilePages(group / "memory.stat", files.stat_prefix));
}

// Collects the limits of the levels visible here.
struct Levels {
  std::optional<std::uint64_t> limit, available;  // the smallest ones
  fs::path highest;                               // highest level with a usage file
};

Levels ReadLevels(const fs::path& group, const fs::path& top, const MemoryFiles& files) {
  Levels levels;
  ForEachLevel(group, top, [&](const fs::path& level) {
    if (ReadNumber(level / files.used)) levels.highest = level;
    const auto limit = ReadNumber(level / files.limit);  // "max" is not a number
    if (!limit || *limit >= kUnlimitedV1) return;
    TakeSmaller(limit, &levels.limit);
    TakeSmaller(ReadAvailableUnder(*limit, level, files), &levels.available);
  });
  return levels;
}

// A limit below all visible ones belongs to a group above the mount point. That group uses at least
// as much as the highest visible group.
std::optional<std::uint64_t> ReadAvailableV1(const fs::path& group, const fs::path& top) {
  Levels levels = ReadLevels(group, top, kFilesV1);
  const auto limit = ReadValue(group / "memory.stat", "hierarchical_memory_limit");
  if (limit && *limit < levels.limit.value_or(kUnlimitedV1)) {
    TakeSmaller(ReadAvailableUnder(*limit, levels.highest, kFilesV1), &levels.available);
  }
  return levels.available;
}

std::optional<std::uint64_t> ReadKillsV2(const OwnCgroups& cgroups) {
  if (cgroups.unified.empty()) return std::nullopt;
  return ReadValue(cgroups.unified / "memory.events", "oom_kill");
}

std::optional<GroupMemory> ReadV2(const OwnCgroups& cgroups) {
  const auto kills = ReadKillsV2(cgroups);
  if (!kills) return std::nullopt;
  return GroupMemory{*kills, ReadLevels(cgroups.unified, cgroups.unified_root, kFilesV2).limit,
                     ReadNumber(cgroups.unified / "memory.peak")};
}

std::optional<std::uint64_t> ReadKillsV1(const fs::path& group) {
  if (group.empty()) return std::nullopt;
  return ReadValue(group / "memory.oom_control", "oom_kill");
}

std::optional<GroupMemory> ReadV1(const fs::path& group) {
  const auto kills = ReadKillsV1(group);
  if (!kills) return std::nullopt;
  GroupMemory memory{*kills, ReadValue(group / "memory.stat", "hierarchical_memory_limit"),
                     ReadNumber(group / "memory.max_usage_in_bytes")};
  if (memory.limit.value_or(0) >= kUnlimitedV1) memory.limit.reset();
  return memory;
}

}  // namespace

OwnCgroups FindOwnCgroups(const fs::path& root) {
  OwnCgroups cgroups;
  const std::vector<Mount> mounts = ReadMounts(root);
  std::ifstream membership(root / "proc/self/cgroup");
  for (std::string line; std::getline(membership, line);) {
    // "ID:CONTROLLERS:GROUP"; the ID of v2 is 0 and its controllers are not listed.
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    for (const Mount& mount : mounts) {
      if (controllers.empty() && mount.type == "cgroup2" && cgroups.unified.empty()) {
        cgroups.unified = FindFolder(mount, line.substr(second + 1));
        cgroups.unified_root = mount.point;
      } else if (HasWord(controllers, "memory") && mount.type == "cgroup" &&
                 HasWord(mount.options, "memory")) {
        cgroups.memory_v1 = FindFolder(mount, line.substr(second + 1));
        cgroups.memory_v1_root = mount.point;
      }
    }
  }
  return cgroups;
}

std::optional<std::uint64_t> ReadOomKills(const OwnCgroups& cgroups) {
  if (const auto kills = ReadKillsV2(cgroups)) return kills;
  return ReadKillsV1(cgroups.memory_v1);
}

std::optional<std::uint64_t> ReadAvailableInGroups(const OwnCgroups& cgroups) {
  if (!cgroups.unified.empty()) {
    const Levels levels = ReadLevels(cgroups.unified, cgroups.unified_root, kFilesV2);
    if (levels.available) return levels.available;
  }
  if (cgroups.memory_v1.empty()) return std::nullopt;
  return ReadAvailableV1(cgroups.memory_v1, cgroups.memory_v1_root);
}

std::optional<GroupMemory> ReadGroupMemory(const OwnCgroups& cgroups) {
  if (auto memory = ReadV2(cgroups)) return memory;
  return ReadV1(cgroups.memory_v1);
}

}  // namespace ds
