#pragma once

// The cores and memory nodes of this machine, as the kernel describes them below /sys.
//
// Collecting fails nowhere: what cannot be read is left out. Threads: safe to call concurrently.

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ds {

struct NumaNode {
  int id = 0;
  std::vector<int> cpus;  // logical ones, ascending; none: memory without processors
  std::uint64_t memory_bytes = 0;

  friend bool operator==(const NumaNode&, const NumaNode&) = default;
};

struct CpuTopology {
  // One logical cpu, the lowest, of every physical core that may be used; ascending.
  std::vector<int> cores;
  std::vector<NumaNode> nodes;  // ascending; none where the kernel does not say
};

// The logical cpus this thread may run on, ascending; the first where the kernel does not say.
std::vector<int> ListAllowedCpus();

// `allowed` are the logical cpus that count for `cores`; `root` is where sys/ lies, for tests.
CpuTopology ReadCpuTopology(const std::vector<int>& allowed = ListAllowedCpus(),
                            const std::filesystem::path& root = "/");

// "0-3,8" as the kernel writes it, blanks and a newline around it included; "" is no cpu.
// kInvalidArgument for anything else.
StatusOr<std::vector<int>> ParseKernelCpuList(std::string_view text);

}  // namespace ds
