#pragma once

// WorldGroup: the collectives of CPU ranks on several hosts. Ranks of a host share memory
// (shm/host_group.h), hosts exchange frames (peer_links.h).
//
// Algorithm. A lane connects the ranks with the same local number on all hosts. If a host has fewer
// ranks than another host, some of its ranks carry several lanes. Each lane moves its part of the
// data, so all ranks of a host share the work between hosts and no element crosses a link twice.
//
// Reductions go along the chain of hosts. A host adds its ranks, one by one, to the sums of the
// previous hosts and passes the sums on. The sums of the last host are the result, which travels
// back along the chain or goes to its receiver. The sums are made in rank order, exactly as on one
// host, so the bits are the same for any distribution of ranks over hosts. Sums of bf16 and fp16
// travel as fp32. Data is split into blocks, so that both directions and all hosts are busy at
// once. For n bytes of fp32 in the full tensor, one link between two neighbours of the chain
// carries: all-reduce n each way; reduce-scatter n forward, and the results of the hosts before it
// back; all-gather the data that each host lacks, once.
//
// A subgroup uses the same connections and the same thread; its frames carry its group id.
//
// Guarantees and errors are as in shm/cpu_group.h. The WorldGroup owns its host group. It shares
// ownership of the links with the groups made from it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/net/group_links.h"
#include "runtime/comm/net/rank_locations.h"
#include "runtime/comm/shm/cpu_group.h"
#include "runtime/comm/shm/host_group.h"

namespace ds::comm {

struct WorldGroupOptions {
  int rank = 0;
  RankLocations layout{{1}};
  // Bytes that a lane moves at once.
  std::size_t block_bytes = std::size_t{1} << 20;
  GroupId group = 0;
  // The links' numbers of the group's ranks, if they differ from those here.
  std::vector<int> names = {};
};

class WorldGroup : public CpuGroup {
 public:
  // `host` connects the ranks of this host, `links` the ranks of other hosts.
  WorldGroup(std::unique_ptr<HostGroup> host, std::shared_ptr<PeerLinks> links,
             const WorldGroupOptions& options);
  ~WorldGroup() override;

  int rank() const override { return rank_; }
  int size() const override { return layout_.size(); }
  bool spans_hosts() const override { return true; }
  BytesBetweenHosts bytes_between_hosts() const override { return links().bytes(); }
  std::size_t shared_bytes() const override { return host_->shared_bytes(); }
  std::string NameOf(int rank) const override {
    return "rank " + std::to_string(links_.ranks()[static_cast<std::size_t>(rank)]);
  }
  const PeerLinks& links() const { return *links_.all(); }

  void TagNextCall(const CallTag& tag) override { next_tag_ = tag; }
  Status Barrier() override;
  Status AllReduce(std::byte* data, Elements elements, ReduceOp op) override;
  Status Reduce(std::byte* data, Elements elements, ReduceOp op, int root) override;
  Status ReduceScatter(std::byte* output, RankInputs inputs, Elements each, ReduceOp op) override;
  Status AllGather(RankOutputs outputs, const std::byte* input, Elements each) override;
  Status Broadcast(std::byte* data, Elements elements, int root) override;
  Status Gather(RankOutputs outputs, const std::byte* input, Elements each, int root) override;
  Status Scatter(std::byte* output, RankInputs inputs, Elements each, int root) override;
  Status AllToAll(const AllToAllBuffers& parts) override;
  Status Send(const std::byte* data, Elements elements, int peer) override;
  Status Receive(std::byte* data, Elements elements, int peer) override;
  Status SendReceive(const OutgoingMessage& outgoing, const IncomingMessage& incoming) override;
  StatusOr<std::unique_ptr<CpuGroup>> MakeSubgroup(const std::string& name,
                                                   const std::vector<int>& members) override;
  std::string AwaitEnd(const std::stop_token& stop) override { return host_->AwaitEnd(stop); }

 protected:
  void End(std::string_view cause) override { links_.all()->End(cause); }

 private:
  using Tickets = std::vector<PeerLinks::Ticket>;
  // EndOfCall: abandons unfinished transfers at the end of a call. Every function that posts its
  // caller's memory must declare one.
  struct EndOfCall {
    GroupLinks& links;
    ~EndOfCall() { links.AbandonUnfinished(); }
  };

  // Returns the call with its own tag.
  CallSignature Begin(CallSignature call);
  // Marks the next call of the host group as a part of `call`.
  void TagHostCall(const CallSignature& call);
  Status AllReduceAs(std::byte* data, Elements elements, const CallSignature& call);
  // Copies data to every rank of this host from rank `local`, or from the carrier of each lane.
  Status BroadcastOnHost(std::byte* data, Elements elements, int local, const CallSignature& call);
  Status ShareLanes(std::byte* data, Elements elements, const CallSignature& call);
  Status ShareGathered(RankOutputs outputs, Elements each, int from, const CallSignature& call);
  Status Exchange(const AllToAllBuffers& parts, const CallSignature& call);
  PeerLinks::Ticket Post(int peer, const CallSignature& call, std::span<const std::byte> bytes);
  PeerLinks::Ticket Await(int peer, const CallSignature& call, std::span<std::byte> bytes);
  Status WaitFor(const Tickets& tickets);
  PeerLinks::Ticket PostMessage(const OutgoingMessage& message, const CallTag& tag);
  PeerLinks::Ticket AwaitMessage(const IncomingMessage& message, const CallTag& tag);
  Status SendOnHost(const OutgoingMessage& message, const CallTag& tag);
  Status ReceiveOnHost(const IncomingMessage& message, const CallTag& tag);
  Status CompareMembers(const std::string& name, const std::vector<int>& members,
                        GroupLinks* links);
  bool IsOnThisHost(int rank) const { return layout_.LocationOf(rank).host == me_.host; }

  std::vector<std::byte> memory_;  // used by reductions
  std::unique_ptr<HostGroup> host_;
  GroupLinks links_;
  const int rank_;
  const RankLocations layout_;
  const RankLocation me_;
  const std::size_t block_bytes_;
  CallTag next_tag_;
  const FamilyMember member_;
};

}  // namespace ds::comm
