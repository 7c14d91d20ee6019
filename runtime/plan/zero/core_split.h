#pragma once

// SplitCores: splits a rank's cores between computation and an update that overlaps the backward
// pass (offload_optimizer.cpuadam_cores_perc, zenflow.pt_reserved_cores_perc). As in DeepSpeed's
// SuperOffload and ZenFlow, the first cores compute and the last ones update. Unlike there, neither
// side is left without a core.

#include <cstddef>
#include <string>
#include <vector>

namespace ds::zero {

struct CoreSplit {
  std::vector<int> compute, update;  // logical cores; both empty without a split
  std::string why_not;               // the reason for no split
};

// Splits `cores` so that the fraction `compute_share`, rounded up, computes, and each side has at
// least one. A share of 0 or 1, or a single core, gives no split.
CoreSplit SplitCores(const std::vector<int>& cores, double compute_share);

// Limits the computation to its first `most` cores.
CoreSplit LimitCompute(CoreSplit split, std::size_t most);

// Returns the cores of rank `index` out of `count` ranks on a host, in order; the first ranks have
// one more if the cores do not divide evenly. With fewer cores than ranks, ranks share cores.
std::vector<int> TakeOwnCores(const std::vector<int>& cores, int index, int count);

}  // namespace ds::zero
