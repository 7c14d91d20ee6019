#include "cli/report/read_host.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <system_error>

#include "cli/launch/core_list.h"
#include "cli/report/text_file.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

int CountListed(const std::string& core_list) {
  const auto cores = ParseCoreList(core_list);
  return cores.ok() ? static_cast<int>(cores->size()) : 0;
}

int CountNumaNodes(const fs::path& root) {
  const int online = CountListed(ReadText(root / "sys/devices/system/node/online"));
  return std::max(online, 1);
}

// Reads the quota: "150000 100000" is one and a half cores; "max 100000" is no limit.
std::optional<double> ReadQuotaCores(const fs::path& root) {
  const auto words = SplitAtBlanks(ReadText(root / "sys/fs/cgroup/cpu.max"));
  if (words.size() != 2) return std::nullopt;
  const auto quota = ParseLeadingNumber(words[0]);
  const auto period = ParseLeadingNumber(words[1]);
  if (!quota || !period || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

ProcessorFacts ReadProcessor(const fs::path& root) {
  const auto lines = ReadLines(root / "proc/cpuinfo");
  ProcessorFacts facts;
  facts.model = FindValue(lines, "model name");
  // The key is "flags" on x86 and "Features" on ARM.
  facts.features = SplitAtBlanks(FindValue(lines, "flags"));
  if (facts.features.empty()) facts.features = SplitAtBlanks(FindValue(lines, "Features"));
  facts.cores = CountListed(ReadText(root / "sys/devices/system/cpu/online"));
  facts.usable_cores =
      CountListed(FindValue(ReadLines(root / "proc/self/status"), "Cpus_allowed_list"));
  facts.quota_cores = ReadQuotaCores(root);
  facts.numa_nodes = CountNumaNodes(root);
  return facts;
}

// Reads a line like "MemTotal:  16384 kB".
std::optional<std::uint64_t> Kibibytes(const std::vector<std::string>& lines,
                                       std::string_view key) {
  const auto number = ParseLeadingNumber(FindValue(lines, key));
  if (!number) return std::nullopt;
  return *number * 1024;
}

MemoryFacts ReadMemory(const fs::path& root) {
  const auto lines = ReadLines(root / "proc/meminfo");
  return {.total = Kibibytes(lines, "MemTotal"),
          .available = Kibibytes(lines, "MemAvailable"),
          .limit = ParseLeadingNumber(ReadText(root / "sys/fs/cgroup/memory.max"))};
}

std::optional<SpaceFacts> ReadSpace(const fs::path& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) return std::nullopt;
  return SpaceFacts{.path = path,
                    .total = std::uint64_t{info.f_blocks} * info.f_frsize,
                    .free = std::uint64_t{info.f_bavail} * info.f_frsize,
                    .writable = ::access(path.c_str(), W_OK | X_OK) == 0};
}

// Returns the folder itself, or its nearest existing parent.
fs::path NearestExisting(const fs::path& path) {
  std::error_code error;
  fs::path nearest = fs::absolute(path, error);
  while (!fs::exists(nearest, error) && nearest.has_relative_path()) {
    nearest = nearest.parent_path();
  }
  return nearest;
}

// Reads "Max open files            1024                 4096                 files". At least two
// blanks separate the columns; the first number is the soft limit.
std::optional<std::uint64_t> SoftLimit(const std::vector<std::string>& lines,
                                       std::string_view name) {
  for (const std::string& line : lines) {
    if (!line.starts_with(name)) continue;
    const auto words = SplitAtBlanks(std::string_view(line).substr(name.size()));
    if (words.empty()) return std::nullopt;
    return words[0] == "unlimited" ? LimitFacts::kUnlimited : ParseLeadingNumber(words[0]);
  }
  return std::nullopt;
}

LimitFacts ReadLimits(const fs::path& root) {
  const auto lines = ReadLines(root / "proc/self/limits");
  return {.locked_memory = SoftLimit(lines, "Max locked memory"),
          .open_files = SoftLimit(lines, "Max open files")};
}

std::string SystemName(const fs::path& root) {
  std::string name = FindValue(ReadLines(root / "etc/os-release"), "PRETTY_NAME", '=');
  std::erase(name, '"');
  return name;
}

}  // namespace

HostFacts ReadHost(const HostSources& sources) {
  const fs::path& root = sources.root;
  HostFacts facts;
  facts.name = ReadText(root / "proc/sys/kernel/hostname");
  facts.kernel = ReadText(root / "proc/sys/kernel/osrelease");
  facts.system = SystemName(root);
  facts.processor = ReadProcessor(root);
  facts.memory = ReadMemory(root);
  facts.shared_memory = ReadSpace(root / "dev/shm");
  facts.run_directory = ReadSpace(NearestExisting(sources.run_directory));
  facts.limits = ReadLimits(root);
  ReadGpus(root, &facts);
  ReadNetwork(root, &facts);
  return facts;
}

}  // namespace ds::cli
