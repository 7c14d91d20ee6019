#pragma once

// MemoryPolicy selects the NUMA nodes for the memory of a bound rank, based on the rank's cores.
//
//   one node holds all cores of the rank           its memory only (bind)
//   as many nodes without cpus as with (HBM in     the k-th memory-only node, preferred, for cores
//     "flat" mode)                                 of the k-th node with cpus
//   neighbouring nodes with the same cpus          all nodes of that group (bind)
//     ("fake" NUMA)
//   cores of several nodes, nodes not known        the kernel's default
//
// The rules match DeepSpeed's numactl support. Pure; safe from any thread.

#include <string>
#include <vector>

#include "runtime/process/cpu_topology.h"

namespace ds::cli {

struct MemoryPolicy {
  enum class Kind { kDefault, kBind, kPreferred };
  Kind kind = Kind::kDefault;
  std::vector<int> nodes;  // ascending; empty for kDefault

  friend bool operator==(const MemoryPolicy&, const MemoryPolicy&) = default;
};

MemoryPolicy ChooseMemory(const std::vector<NumaNode>& nodes, const std::vector<int>& cores);

// Returns "bind 0,1", "prefer 2", or "" for the default.
std::string ShowMemoryPolicy(const MemoryPolicy& policy);

}  // namespace ds::cli
