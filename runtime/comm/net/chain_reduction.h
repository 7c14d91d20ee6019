#pragma once

// ChainReduction: the reduction of world_group.h along the chain of hosts, block by block.
//
// A block has a few segments per lane. The carrier of a lane collects its host's segments, adds
// them rank by rank to the sums received from the previous host, and passes the sums on. On the
// last host the sums are the result. Several blocks are in flight at once.
//
// Not thread-safe. Use one object per collective. Objects and memory referenced by Parts and the
// plan must outlive this object.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/net/group_links.h"
#include "runtime/comm/net/rank_locations.h"
#include "runtime/comm/shm/host_group.h"

namespace ds::comm {

// ReduceSegment: a contiguous run of elements that is reduced as a unit.
struct ReduceSegment {
  const std::byte* input = nullptr;  // this rank's elements
  std::byte* result = nullptr;       // on the last host, if the result stays with the carrier
  std::size_t count = 0;
  int receiver = -1;  // else the rank to which the last host's carrier sends the result
};

// ReducePlan: describes the data to reduce. Every rank splits its data in the same way.
struct ReducePlan {
  std::size_t blocks = 1;
  std::size_t lane_elements = 0;  // maximum of one lane in one block
  std::function<std::vector<ReduceSegment>(std::size_t block, int lane)> segments;
  // Called when the results of `block` are on the last host: immediately on that host, a few blocks
  // later elsewhere. Fetches the results.
  std::function<Status(std::size_t block)> finish;
};

class ChainReduction {
 public:
  struct Inputs {
    HostGroup& host;
    GroupLinks& links;
    const RankLocations& layout;
    int rank;
    CallSignature call;              // type and op are the reduction's
    std::vector<std::byte>& memory;  // reused by later collectives; grows as needed
  };
  ChainReduction(const Inputs& parts, const ReducePlan& plan);

  Status Run();

 private:
  // Buffers and tickets of one block in flight; reused by the block kWindow later.
  struct Transit {
    std::byte* before = nullptr;    // sums of the previous hosts
    std::byte* outgoing = nullptr;  // sums including this host's, or results for other ranks
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

  const Inputs parts_;
  const ReducePlan& plan_;
  const RankLocation me_;
  const std::vector<int> lanes_;  // carried by this rank
  const bool is_first_;
  const bool is_last_;
  std::vector<Transit> transits_;
  std::byte* packed_ = nullptr;         // segments for the other ranks of the host
  std::byte* collected_ = nullptr;      // segments received from each of the ranks
  std::vector<const std::byte*> from_;  // start of each rank's segments; empty: only this rank
};

}  // namespace ds::comm
