#include "daemon/inspect/read_host.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>

#include "daemon/inspect/text_file.h"
#include "runtime/base/files.h"
#include "runtime/base/gpu_signs.h"
#include "runtime/process/available_memory.h"
#include "runtime/process/cgroups.h"
#include "runtime/process/cpu_topology.h"

namespace ds::daemon {
namespace {

namespace fs = std::filesystem;

// Names alone do not identify a machine: it has several addresses, and SSH aliases.
std::string IdentifyMachine(const fs::path& root) {
  const std::string boot = ReadText(root / "proc/sys/kernel/random/boot_id");
  std::error_code no_network;
  std::error_code no_processes;
  const fs::path network = fs::read_symlink(root / "proc/self/ns/net", no_network);
  const fs::path processes = fs::read_symlink(root / "proc/self/ns/pid", no_processes);
  if (boot.empty() || no_network || no_processes) return "";
  return boot + " " + network.string() + " " + processes.string();
}

std::uint32_t CountListed(const std::string& cpu_list) {
  const auto cores = ParseKernelCpuList(cpu_list);
  return cores.ok() ? static_cast<std::uint32_t>(cores->size()) : 0;
}

std::uint32_t CountNumaNodes(const fs::path& root) {
  const std::uint32_t online = CountListed(ReadText(root / "sys/devices/system/node/online"));
  return std::max(online, 1U);
}

// Reads the quota of one group: "150000 100000" is one and a half cores; "max 100000" is no limit.
std::optional<double> ReadGroupQuota(const fs::path& group) {
  const auto words = SplitAtBlanks(ReadText(group / "cpu.max"));
  if (words.size() != 2) return std::nullopt;
  const auto quota = ParseLeadingNumber(words[0]);
  const auto period = ParseLeadingNumber(words[1]);
  if (!quota || !period || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// Returns the smallest quota of this process's group and its ancestors.
std::optional<double> ReadQuotaCores(const fs::path& root) {
  const OwnCgroups cgroups = FindOwnCgroups(root);
  std::optional<double> smallest;
  for (fs::path group = cgroups.unified; !group.empty(); group = group.parent_path()) {
    if (const auto quota = ReadGroupQuota(group)) {
      smallest = std::min(*quota, smallest.value_or(*quota));
    }
    if (group == cgroups.unified_root || !group.has_relative_path()) break;
  }
  return smallest;
}

void ReadProcessor(const fs::path& root, v1::ProcessorFacts* facts) {
  const auto lines = ReadLines(root / "proc/cpuinfo");
  facts->set_model(FindValue(lines, "model name"));
  // The key is "flags" on x86 and "Features" on ARM.
  auto features = SplitAtBlanks(FindValue(lines, "flags"));
  if (features.empty()) features = SplitAtBlanks(FindValue(lines, "Features"));
  for (std::string& feature : features) facts->add_features(std::move(feature));
  facts->set_cores(CountListed(ReadText(root / "sys/devices/system/cpu/online")));
  if (const auto quota = ReadQuotaCores(root)) facts->set_quota_cores(*quota);
  facts->set_numa_nodes(CountNumaNodes(root));
}

void ReadMemory(const fs::path& root, v1::MemoryFacts* facts) {
  const auto total =
      ParseLeadingNumber(FindValue(ReadLines(root / "proc/meminfo"), "MemTotal"));  // in KiB
  if (total) facts->set_total(*total * 1024);
  if (const auto available = ReadAvailableMemory(root)) facts->set_available(*available);
  const auto group = ReadGroupMemory(FindOwnCgroups(root));
  if (group && group->limit) facts->set_limit(*group->limit);
}

// Reads "Max open files            1024                 4096                 files". At least two
// blanks separate the columns; the first number is the soft limit.
std::optional<std::uint64_t> SoftLimit(const std::vector<std::string>& lines,
                                       std::string_view name) {
  for (const std::string& line : lines) {
    if (!line.starts_with(name)) continue;
    const auto words = SplitAtBlanks(std::string_view(line).substr(name.size()));
    if (words.empty()) return std::nullopt;
    return words[0] == "unlimited" ? kUnlimited : ParseLeadingNumber(words[0]);
  }
  return std::nullopt;
}

void ReadLimits(const fs::path& root, v1::LimitFacts* facts) {
  const auto lines = ReadLines(root / "proc/self/limits");
  if (const auto limit = SoftLimit(lines, "Max locked memory")) facts->set_locked_memory(*limit);
  if (const auto limit = SoftLimit(lines, "Max open files")) facts->set_open_files(*limit);
  if (const auto limit = SoftLimit(lines, "Max processes")) facts->set_processes(*limit);
}

std::string SystemName(const fs::path& root) {
  std::string name = FindValue(ReadLines(root / "etc/os-release"), "PRETTY_NAME", '=');
  std::erase(name, '"');
  return name;
}

// Returns the errno with which a job could not use the folder; 0 if it can.
int TryFolder(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return errno;
  if (!S_ISDIR(info.st_mode)) return ENOTDIR;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

}  // namespace

void ReadResources(const fs::path& root, v1::HostFacts* facts) {
  facts->set_name(ReadText(root / "proc/sys/kernel/hostname"));
  facts->set_machine(IdentifyMachine(root));
  facts->mutable_processor()->set_usable_cores(
      CountListed(FindValue(ReadLines(root / "proc/self/status"), "Cpus_allowed_list")));
  *facts->mutable_shared_memory() = ReadFolder((root / "dev/shm").string());
  ReadLimits(root, facts->mutable_limits());
  facts->set_gpu_devices(static_cast<std::uint32_t>(CountNumbered(root / "dev", "nvidia")));
  facts->set_has_gpu_driver(HasNvidiaDriver(root));
}

void ReadDescription(const fs::path& root, v1::HostFacts* facts) {
  facts->set_kernel(ReadText(root / "proc/sys/kernel/osrelease"));
  facts->set_system(SystemName(root));
  ReadProcessor(root, facts->mutable_processor());
  ReadMemory(root, facts->mutable_memory());
  ReadNetwork(root, facts);
  if (root == "/") ReadAddresses(facts);
}

v1::FolderFacts ReadFolder(const std::string& path) {
  v1::FolderFacts facts;
  facts.set_path(path);
  struct statvfs info {};
  int error = TryFolder(path);
  if (error == 0 && ::statvfs(path.c_str(), &info) != 0) error = errno;
  if (error != 0) {
    facts.set_problem(std::generic_category().message(error));
    facts.set_missing(error == ENOENT);
    return facts;
  }
  facts.set_total(std::uint64_t{info.f_blocks} * info.f_frsize);
  facts.set_free(std::uint64_t{info.f_bavail} * info.f_frsize);
  facts.set_writable(::access(path.c_str(), W_OK | X_OK) == 0);
  return facts;
}

fs::path FindNearestExisting(const fs::path& path) {
  std::error_code error;
  fs::path nearest = fs::absolute(path, error);
  struct stat info {};
  while (nearest.has_relative_path() && ::stat(nearest.c_str(), &info) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) break;
    nearest = nearest.parent_path();
  }
  return nearest;
}

}  // namespace ds::daemon
