#pragma once

// SplitCores: which of a rank's cores the update beside the backward pass has for itself
// (offload_optimizer.cpuadam_cores_perc, zenflow.pt_reserved_cores_perc), as DeepSpeed's
// SuperOffload and ZenFlow split them: the first ones compute, the last ones update. Unlike theirs
// no side is left without a core.

#include <cstddef>
#include <string>
#include <vector>

namespace ds::zero {

struct CoreSplit {
  std::vector<int> compute, update;  // logical ones; of no split both are empty
  std::string why_not;               // of no split
};

// Splits `cores` so that this share of them, rounded up, computes, and each side has one at least.
// None are split of a share of 0 or 1, by which one side has nothing to do, and of a single core.
CoreSplit SplitCores(const std::vector<int>& cores, double compute_share);

// Leaves the computation so many of its cores, the first ones, where it has more.
CoreSplit LimitCompute(CoreSplit split, std::size_t most);

// Takes member `index`'s part of cores that `count` ranks of a host have in common, in order; those
// that are left over go to the first ranks. Where there are fewer cores than ranks they share them.
std::vector<int> TakeOwnCores(const std::vector<int>& cores, int index, int count);

}  // namespace ds::zero
