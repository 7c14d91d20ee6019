#include "cli/launch/memory_policy.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "runtime/base/number_list.h"

namespace ds::cli {
namespace {

bool Holds(const NumaNode& node, const std::vector<int>& cores) {
  return std::includes(node.cpus.begin(), node.cpus.end(), cores.begin(), cores.end());
}

// Counts the nodes before `end` with CPUs, or without.
std::size_t CountBefore(const std::vector<NumaNode>& nodes, std::size_t end, bool with_cpus) {
  return static_cast<std::size_t>(
      std::count_if(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(end),
                    [with_cpus](const NumaNode& node) { return node.cpus.empty() != with_cpus; }));
}

// Returns the k-th node without CPUs.
int MemoryOnlyNode(const std::vector<NumaNode>& nodes, std::size_t k) {
  for (const NumaNode& node : nodes) {
    if (node.cpus.empty() && k-- == 0) return node.id;
  }
  return -1;
}

// Returns the adjacent nodes with the same CPUs as nodes[index], including itself. Omits nodes
// without memory, because the kernel refuses an empty binding.
std::vector<int> SameCpusWithMemory(const std::vector<NumaNode>& nodes, std::size_t index) {
  std::size_t first = index;
  while (first > 0 && nodes[first - 1].cpus == nodes[index].cpus) --first;
  std::vector<int> group;
  for (std::size_t i = first; i < nodes.size() && nodes[i].cpus == nodes[index].cpus; ++i) {
    if (nodes[i].memory_bytes > 0) group.push_back(nodes[i].id);
  }
  return group;
}

}  // namespace

MemoryPolicy ChooseMemory(const std::vector<NumaNode>& nodes, const std::vector<int>& cores) {
  const auto home = std::find_if(nodes.begin(), nodes.end(),
                                 [&](const NumaNode& node) { return Holds(node, cores); });
  if (cores.empty() || home == nodes.end()) return {};
  const auto index = static_cast<std::size_t>(home - nodes.begin());
  const std::size_t with_cpus = CountBefore(nodes, nodes.size(), true);
  const bool flat_hbm = 2 * with_cpus == nodes.size();
  if (flat_hbm) {
    return {MemoryPolicy::Kind::kPreferred,
            {MemoryOnlyNode(nodes, CountBefore(nodes, index, true))}};
  }
  std::vector<int> group = SameCpusWithMemory(nodes, index);
  if (group.empty()) return {};
  return {MemoryPolicy::Kind::kBind, std::move(group)};
}

std::string ShowMemoryPolicy(const MemoryPolicy& policy) {
  switch (policy.kind) {
    case MemoryPolicy::Kind::kDefault:
      return "";
    case MemoryPolicy::Kind::kBind:
      return "bind " + FormatNumberList(policy.nodes);
    case MemoryPolicy::Kind::kPreferred:
      return "prefer " + FormatNumberList(policy.nodes);
  }
  return "";
}

}  // namespace ds::cli
