#pragma once

// RankLocations: the host of each rank, and the rank of a host that carries a lane (world_group.h).
// Ranks are numbered host by host. Pure.

#include <vector>

namespace ds::comm {

struct RankLocation {
  int host = 0;
  int local = 0;  // the rank's number on its host
};

class RankLocations {
 public:
  // `counts` holds the number of ranks of each host, in the order of hosts; each at least 1.
  explicit RankLocations(std::vector<int> counts);

  int hosts() const { return static_cast<int>(counts_.size()); }
  int size() const { return first_.back(); }
  int count_on(int host) const { return counts_[static_cast<std::size_t>(host)]; }
  int first_on(int host) const { return first_[static_cast<std::size_t>(host)]; }
  RankLocation LocationOf(int rank) const;

  // Returns the number of lanes: the maximum number of ranks on a host.
  int lanes() const { return lanes_; }
  // Returns the rank of `host` that carries the lane.
  int CarrierOf(int lane, int host) const { return first_on(host) + lane % count_on(host); }
  // Returns the lanes that the rank carries, ascending.
  std::vector<int> LanesOf(int rank) const;

 private:
  std::vector<int> counts_;
  std::vector<int> first_;  // first rank of each host, then the total number of ranks
  int lanes_ = 0;
};

}  // namespace ds::comm
