#pragma once

// RankPlaces: on which host each rank is, and which rank of a host carries a lane (world_group.h).
// Ranks are numbered host by host. Pure.

#include <vector>

namespace ds::comm {

struct RankPlace {
  int host = 0;
  int local = 0;  // the rank's number on its host
};

class RankPlaces {
 public:
  // `counts`: the ranks of each host, in the order of hosts; each at least 1.
  explicit RankPlaces(std::vector<int> counts);

  int hosts() const { return static_cast<int>(counts_.size()); }
  int size() const { return first_.back(); }
  int count_on(int host) const { return counts_[static_cast<std::size_t>(host)]; }
  int first_on(int host) const { return first_[static_cast<std::size_t>(host)]; }
  RankPlace PlaceOf(int rank) const;

  // There are as many as the host with the most ranks has ranks.
  int lanes() const { return lanes_; }
  // The rank that carries the lane on the host.
  int CarrierOf(int lane, int host) const { return first_on(host) + lane % count_on(host); }
  // Those that the rank carries, ascending.
  std::vector<int> LanesOf(int rank) const;

 private:
  std::vector<int> counts_;
  std::vector<int> first_;  // rank of each host, and the number of ranks behind them
  int lanes_ = 0;
};

}  // namespace ds::comm
