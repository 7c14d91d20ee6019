#include "runtime/comm/net/rank_locations.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace ds::comm {

RankLocations::RankLocations(std::vector<int> counts) : counts_(std::move(counts)), first_(1, 0) {
  for (const int count : counts_) {
    DS_CHECK(count > 0);
    first_.push_back(first_.back() + count);
    lanes_ = std::max(lanes_, count);
  }
}

RankLocation RankLocations::LocationOf(int rank) const {
  const auto next = std::upper_bound(first_.begin(), first_.end(), rank);
  const int host = static_cast<int>(next - first_.begin()) - 1;
  return {.host = host, .local = rank - first_on(host)};
}

std::vector<int> RankLocations::LanesOf(int rank) const {
  const RankLocation location = LocationOf(rank);
  std::vector<int> lanes;
  for (int lane = location.local; lane < lanes_; lane += count_on(location.host))
    lanes.push_back(lane);
  return lanes;
}

}  // namespace ds::comm
