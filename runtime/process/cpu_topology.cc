#include "runtime/process/cpu_topology.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "runtime/base/allowed_cores.h"
#include "runtime/base/files.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

// Limits the memory for a list such as "0-2000000000".
constexpr int kMaxCpu = 65535;
constexpr std::uint64_t kMaxSysFileBytes = std::uint64_t{1} << 20;

// Parses a number at the start of `text` and removes it from `text`.
bool TakeNumber(std::string_view* text, int* number) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc() || *number < 0 || *number > kMaxCpu) return false;
  text->remove_prefix(static_cast<std::size_t>(end - text->data()));
  return true;
}

// Returns "" when the file cannot be read.
std::string ReadSmall(const fs::path& path) {
  StatusOr<std::string> text = ReadFile(path, kMaxSysFileBytes);
  return text.ok() ? std::move(text).value() : "";
}

// Returns the lowest logical CPU that shares a physical core with `cpu`; `cpu` itself when unknown.
int FindFirstSibling(const fs::path& root, int cpu) {
  const auto siblings =
      ParseKernelCpuList(ReadSmall(root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) /
                                   "topology/thread_siblings_list"));
  return siblings.ok() && !siblings->empty() ? siblings->front() : cpu;
}

// Returns the first allowed logical CPU of each physical core.
std::vector<int> ChooseOnePerCore(const std::vector<int>& allowed, const fs::path& root) {
  std::vector<int> cores;
  std::vector<int> taken;  // first siblings of the cores found so far
  for (const int cpu : allowed) {
    const int core = FindFirstSibling(root, cpu);
    if (std::find(taken.begin(), taken.end(), core) != taken.end()) continue;
    taken.push_back(core);
    cores.push_back(cpu);
  }
  return cores;
}

// Finds "Node 0 MemTotal:  16314048 kB" among other lines.
std::uint64_t ReadNodeMemory(const fs::path& folder) {
  std::istringstream text(ReadSmall(folder / "meminfo"));
  std::string word;
  while (text >> word) {
    std::uint64_t kibibytes = 0;
    if (word == "MemTotal:" && text >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

// Reads the NUMA nodes. Skips a node without a readable list of CPUs.
std::vector<NumaNode> ReadNodes(const fs::path& root) {
  std::vector<NumaNode> nodes;
  std::error_code error;
  for (fs::directory_iterator entry(root / "sys/devices/system/node", error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    constexpr std::string_view kPrefix = "node";
    std::string_view number = name;
    if (!number.starts_with(kPrefix)) continue;
    number.remove_prefix(kPrefix.size());
    NumaNode node;
    if (!TakeNumber(&number, &node.id) || !number.empty()) continue;
    auto cpus = ParseKernelCpuList(ReadSmall(entry->path() / "cpulist"));
    if (!cpus.ok()) continue;
    node.cpus = std::move(cpus).value();
    node.memory_bytes = ReadNodeMemory(entry->path());
    nodes.push_back(std::move(node));
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const NumaNode& a, const NumaNode& b) { return a.id < b.id; });
  return nodes;
}

}  // namespace

std::vector<int> ListAllowedCpus() {
  StatusOr<std::vector<int>> allowed = ListCoresOfThread();
  return allowed.ok() ? *std::move(allowed) : std::vector<int>{0};
}

CpuTopology ReadCpuTopology(const std::vector<int>& allowed, const fs::path& root) {
  return {.cores = ChooseOnePerCore(allowed, root), .nodes = ReadNodes(root)};
}

StatusOr<std::vector<int>> ParseKernelCpuList(std::string_view text) {
  const std::string list(text);
  constexpr std::string_view kBlank = " \t\n";
  const std::size_t start = text.find_first_not_of(kBlank);
  if (start == std::string_view::npos) return std::vector<int>();
  text = text.substr(start, text.find_last_not_of(kBlank) + 1 - start);
  std::vector<int> cpus;
  for (;;) {
    int first = 0;
    if (!TakeNumber(&text, &first)) break;
    int last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      if (!TakeNumber(&text, &last) || last < first) break;
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (text.empty()) return cpus;
    if (!text.starts_with(',')) break;
    text.remove_prefix(1);
  }
  return InvalidArgumentError("'" + list + "' is not a list of CPUs");
}

}  // namespace ds
