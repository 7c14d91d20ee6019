#include "runtime/plan/zero/core_split.h"

#include <algorithm>
#include <cmath>

namespace ds::zero {

CoreSplit SplitCores(const std::vector<int>& cores, double compute_share) {
  if (compute_share <= 0.0 || compute_share >= 1.0) {
    return {.why_not = "a share of 0 or 1 leaves one side without a core: both use all"};
  }
  const auto count = static_cast<int>(cores.size());
  if (count < 2) return {.why_not = "the rank has one core, which both use"};
  // 0.2 of 5 cores is one core, even if the product of doubles is not exact.
  constexpr double kRounding = 1e-9;
  const auto wanted = static_cast<int>(std::ceil(compute_share * count - kRounding));
  const auto border = cores.begin() + std::clamp(wanted, 1, count - 1);
  return {.compute = {cores.begin(), border}, .update = {border, cores.end()}, .why_not = {}};
}

CoreSplit LimitCompute(CoreSplit split, std::size_t most) {
  split.compute.resize(std::min(split.compute.size(), most));
  return split;
}

std::vector<int> TakeOwnCores(const std::vector<int>& cores, int index, int count) {
  const auto all = static_cast<int>(cores.size());
  if (all < count) return {cores[static_cast<std::size_t>(index % all)]};
  const auto start = [&](int member) {
    return all / count * member + std::min(member, all % count);
  };
  return {cores.begin() + start(index), cores.begin() + start(index + 1)};
}

}  // namespace ds::zero
