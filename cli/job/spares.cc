#include "cli/job/spares.h"

#include <algorithm>
#include <utility>

namespace ds::cli {

SparePool::SparePool(std::vector<int> slot_counts) : unused_(std::move(slot_counts)) {}

std::optional<int> SparePool::Take(int slot_count) {
  const auto found = std::find(unused_.begin(), unused_.end(), slot_count);
  if (found == unused_.end()) return std::nullopt;
  *found = 0;
  return static_cast<int>(found - unused_.begin());
}

bool SparePool::Covers(const std::vector<int>& slot_counts) const {
  SparePool left = *this;
  return std::all_of(slot_counts.begin(), slot_counts.end(),
                     [&](int count) { return left.Take(count).has_value(); });
}

}  // namespace ds::cli
