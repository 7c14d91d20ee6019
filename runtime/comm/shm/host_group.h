#pragma once

// HostGroup: the collectives of one group of ranks on one host, over a SharedRegion.
//
// Algorithm. The life of a group is a sequence of intervals, separated by barriers of all ranks.
// Each rank has three staging buffers of chunk_bytes. Data written in interval t goes to buffer t
// mod 3, and its peers read it in intervals t+1 and t+2. A collective splits its data into rounds
// of one chunk, and consecutive rounds overlap: while round i is copied in, round i-1 is reduced
// and round i-2 is copied out. There is one barrier per round and all data stays within the cache.
// A rank reduces only its own slice, reading all peers' buffers in rank order (reduce_kernels.h),
// and never copies its own contribution.
//
// At the first barrier of a collective every rank compares the CallSignatures of all ranks, so a
// disagreement is an error on every rank. Guarantees and errors are those of cpu_group.h. Threads:
// one group per rank.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/shm/cpu_group.h"
#include "runtime/comm/shm/group_layout.h"
#include "runtime/comm/shm/group_wait.h"
#include "runtime/comm/shm/shared_region.h"

namespace ds::comm {

struct HostGroupOptions {
  RankOf self;
  std::vector<int> names;           // the ranks' numbers in errors, if they differ from those here
  bool ranks_are_processes = true;  // false: threads of a process; their end is not detected
  // Size per rank and staging buffer; a multiple of kMinChunkBytes, the same on all ranks. Larger
  // chunks fall out of the cache, smaller chunks cause more barriers. 0: DefaultChunkBytes.
  std::size_t chunk_bytes = 0;
  // Timeout for a rank that neither ends nor arrives.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  std::string meeting;  // name of the group on this host, used when its ranks make subgroups
  std::shared_ptr<GroupFamily> family;  // null: a new family
  std::function<void()> on_long_wait;   // see group_wait.h; subgroups inherit it
};

inline constexpr std::size_t kMinChunkBytes = kMaxLocalRanks * kCacheLine;
// Returns 1 MiB for two ranks and less for more ranks, so that all staging buffers together stay
// within 6 MiB, which fits the last-level cache of a small machine.
std::size_t DefaultChunkBytes(int size);

class HostGroup : public CpuGroup {
 public:
  static std::size_t RegionBytes(const HostGroupOptions& options);

  // Requires: region->bytes() >= RegionBytes(options), and the region was zero before its first
  // use.
  HostGroup(std::shared_ptr<SharedRegion> region, const HostGroupOptions& options);
  // Leaves the group: peers that still wait for this rank get an error.
  ~HostGroup() override;
  HostGroup(const HostGroup&) = delete;
  HostGroup& operator=(const HostGroup&) = delete;

  int rank() const override { return self_.rank; }
  int size() const override { return self_.size; }
  std::size_t shared_bytes() const override { return region_->bytes() / self_.size; }
  std::string NameOf(int rank) const override { return wait_.NameOf(rank); }

  // Blocks until all ranks have joined. Ranks that are processes must call it first. `look_around`
  // is as in Rendezvous.
  Status MeetPeers(std::chrono::milliseconds timeout, std::function<Status()> look_around = {});
  void ListenForLongWaits(const std::function<void()>& listener);
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
  // While the ring of kChannelSlots slots is full, Send stores messages that other ranks have sent.
  Status Send(const std::byte* data, Elements elements, int peer) override;
  Status Receive(std::byte* data, Elements elements, int peer) override;
  Status SendReceive(const OutgoingMessage& outgoing, const IncomingMessage& incoming) override;
  StatusOr<std::unique_ptr<CpuGroup>> MakeSubgroup(const std::string& name,
                                                   const std::vector<int>& members) override;
  StatusOr<std::unique_ptr<HostGroup>> MakeHostSubgroup(const std::string& name,
                                                        const std::vector<int>& members);
  std::string AwaitEnd(const std::stop_token& stop) override { return wait_.AwaitEnd(stop); }

 protected:
  void End(std::string_view cause) override { wait_.Abort(cause); }

 private:
  // A pending message, copied slot by slot.
  struct Transfer {
    CallSignature call;
    int peer = 0;
    std::size_t bytes = 0;
    std::size_t slots = 0;
    std::size_t moved = 0;  // slots copied so far
    bool is_done() const { return moved == slots; }
  };
  struct Slice {
    std::size_t begin;
    std::size_t end;
  };
  Slice SliceOf(int rank, std::size_t count, std::size_t element_bytes) const;
  // Returns the number of elements that fit in the staging buffer (divided among all ranks if
  // `shared_out`).
  std::size_t RoundElements(ElementType type, bool shared_out) const;
  std::byte* Staging(int rank, std::uint64_t interval) const;

  Transfer StartTransfer(CallKind kind, Elements elements, int peer) const;
  bool HasFreeSlot(int peer) const;
  bool HasUnread(int peer) const;
  // These move as many slots as possible without blocking.
  void PutSlots(const std::byte* data, Transfer* transfer);
  Status TakeSlots(std::byte* data, Transfer* transfer);
  // Blocks until one of the unfinished transfers can proceed.
  Status AwaitChannels(const Transfer& outgoing, const Transfer& incoming);
  void TakeIn(int peer);
  void MarkRead(int peer);

  Status PassBarrier(const CallSignature& call);
  Status PassFirstBarrier(const CallSignature& call);
  template <typename Fill, typename Take>
  Status RunRounds(const CallSignature& call, std::size_t rounds, Fill fill, Take take);
  Status ReduceToAllOrRoot(std::byte* data, Elements elements, const CallSignature& call);
  Status ExchangeCounts(const AllToAllBuffers& parts, std::uint64_t* largest);

  std::shared_ptr<SharedRegion> region_;
  HostGroupOptions options_;
  GroupLayout layout_;
  RankOf self_;
  GroupWait wait_;
  std::uint64_t interval_ = 0;  // barriers passed
  std::uint64_t calls_ = 0;     // collectives begun
  CallTag next_tag_;
  std::vector<std::uint32_t> sent_;      // slots written so far, by peer
  std::vector<std::uint32_t> received_;  // slots read so far, by peer
  using BufferedSlot = std::pair<CallSignature, std::vector<std::byte>>;
  std::vector<std::deque<BufferedSlot>> buffered_;  // received slots that Receive has not consumed
                                                    // yet, by peer
  const FamilyMember member_;
};

}  // namespace ds::comm
