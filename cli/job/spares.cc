#include "cli/job/spares.h"

#include <algorithm>
#include <utility>

#include "cli/job/job_plan.h"

namespace ds::cli {

SparePool::SparePool(std::vector<int> slot_counts) : unused_(std::move(slot_counts)) {}

std::optional<int> SparePool::Take(int slot_count) {
  const auto found = std::find(unused_.begin(), unused_.end(), slot_count);
  if (found == unused_.end()) return std::nullopt;
  *found = 0;
  return static_cast<int>(found - unused_.begin());
}

std::vector<int> SparePool::used() const {
  std::vector<int> used;
  for (std::size_t i = 0; i < unused_.size(); ++i) {
    if (unused_[i] == 0) used.push_back(static_cast<int>(i));
  }
  return used;
}

void SparePool::Restore(const std::vector<int>& used) {
  for (const int spare : used) unused_[static_cast<std::size_t>(spare)] = 0;
}

bool SparePool::Covers(const std::vector<int>& slot_counts) const {
  SparePool left = *this;
  return std::all_of(slot_counts.begin(), slot_counts.end(),
                     [&](int count) { return left.Take(count).has_value(); });
}

bool CanReplace(const JobPlan& plan, const std::vector<int>& node_ranks, const SparePool& pool) {
  std::vector<int> slot_counts;
  for (const int node_rank : node_ranks) {
    if (!plan.IsReplaceable(node_rank)) return false;
    slot_counts.push_back(plan.host(node_rank).rank_count());
  }
  return pool.Covers(slot_counts);
}

}  // namespace ds::cli
