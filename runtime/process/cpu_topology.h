#pragma once

// The cores and NUMA nodes of this machine, as the kernel describes them under /sys.
//
// Collecting never fails: values that cannot be read are omitted. Thread-safe.

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds {

struct NumaNode {
  int id = 0;
  std::vector<int> cpus;  // logical CPUs, ascending; empty for memory without processors
  std::uint64_t memory_bytes = 0;

  friend bool operator==(const NumaNode&, const NumaNode&) = default;
};

struct CpuTopology {
  // The lowest logical CPU of each usable physical core, ascending.
  std::vector<int> cores;
  std::vector<NumaNode> nodes;  // ascending; empty when the kernel does not list nodes
};

// Returns the logical CPUs this thread may run on, ascending. Returns the first CPU when the kernel
// does not report them.
std::vector<int> ListAllowedCpus();

// Reads the topology. Only the logical CPUs in `allowed` count for `cores`. Reads `root`/sys, where
// `root` differs from "/" only in tests.
CpuTopology ReadCpuTopology(const std::vector<int>& allowed = ListAllowedCpus(),
                            const std::filesystem::path& root = "/");

// Parses the kernel's format "0-3,8", with blanks and a newline around it; "" is an empty list.
// Fails with kInvalidArgument for any other text.
StatusOr<std::vector<int>> ParseKernelCpuList(std::string_view text);

}  // namespace ds
