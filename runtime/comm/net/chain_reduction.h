#pragma once

// ChainReduction: the reduction of world_group.h along the chain of hosts, block by block.
//
// A block is a few segments per lane. The carrier of a lane collects its host's segments, adds them
// rank by rank to the sums that the host before has sent, and passes the sums on; on the last host
// they are the result. A few blocks are under way at once.
//
// Threads: one. Lifetimes: what the parts name outlives the object; one object per collective.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/net/group_links.h"
#include "runtime/comm/net/rank_places.h"
#include "runtime/comm/shm/host_group.h"

namespace ds::comm {

// A run of elements that is reduced as one.
struct ReduceSegment {
  const std::byte* input = nullptr;  // this rank's
  std::byte* result = nullptr;       // on the last host, where it stays with the carrier
  std::size_t count = 0;
  int receiver = -1;  // else the rank that the last host's carrier sends it to
};

// Says what is reduced. Every rank cuts its data alike.
struct ReducePlan {
  std::size_t blocks = 1;
  std::size_t lane_elements = 0;  // the most of one lane in one block
  std::function<std::vector<ReduceSegment>(std::size_t block, int lane)> segments;
  // Called when a block's results are on the last host, there at once, elsewhere a few blocks
  // later; takes them from there.
  std::function<Status(std::size_t block)> finish;
};

class ChainReduction {
 public:
  struct Parts {
    HostGroup& host;
    GroupLinks& links;
    const RankPlaces& places;
    int rank;
    CallSignature call;              // type and op are the reduction's
    std::vector<std::byte>& memory;  // kept from one collective to the next; grows
  };
  ChainReduction(const Parts& parts, const ReducePlan& plan);

  Status Run();

 private:
  // Holds what one block under way needs, and then that of the one that comes kWindow later.
  struct Transit {
    std::byte* before = nullptr;    // the sums of the hosts before
    std::byte* outgoing = nullptr;  // the sums with this host's, or results for others
    std::vector<PeerLinks::Ticket> arrivals;
    std::vector<PeerLinks::Ticket> departures;
  };
  static constexpr std::size_t kWindow = 4;

  std::size_t CountOf(std::size_t block, int lane) const;
  Transit& FindTransit(std::size_t block) { return transits_[block % transits_.size()]; }
  void AwaitSums(std::size_t block);
  Status Forward(std::size_t block);
  Status Collect(std::size_t block);
  bool IsSumAlready(const std::vector<ReduceSegment>& segments) const;
  Status ReduceLane(std::size_t block, int lane, std::size_t done);
  Status WaitFor(std::vector<PeerLinks::Ticket>* tickets);

  const Parts parts_;
  const ReducePlan& plan_;
  const RankPlace me_;
  const std::vector<int> lanes_;  // that this rank carries
  const bool is_first_;
  const bool is_last_;
  std::vector<Transit> transits_;
  std::byte* packed_ = nullptr;         // what goes to the other ranks of the host
  std::byte* collected_ = nullptr;      // what came from each of them
  std::vector<const std::byte*> from_;  // where each rank's begins; none: only this rank
};

}  // namespace ds::comm
