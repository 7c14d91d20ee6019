#include "runtime/comm/net/rank_places.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace ds::comm {

RankPlaces::RankPlaces(std::vector<int> counts) : counts_(std::move(counts)), first_(1, 0) {
  for (const int count : counts_) {
    DS_CHECK(count > 0);
    first_.push_back(first_.back() + count);
    lanes_ = std::max(lanes_, count);
  }
}

RankPlace RankPlaces::PlaceOf(int rank) const {
  const auto next = std::upper_bound(first_.begin(), first_.end(), rank);
  const int host = static_cast<int>(next - first_.begin()) - 1;
  return {.host = host, .local = rank - first_on(host)};
}

std::vector<int> RankPlaces::LanesOf(int rank) const {
  const RankPlace place = PlaceOf(rank);
  std::vector<int> lanes;
  for (int lane = place.local; lane < lanes_; lane += count_on(place.host)) lanes.push_back(lane);
  return lanes;
}

}  // namespace ds::comm
