#pragma once

// HostGroup: the collectives of one group of ranks on one host, over a SharedRegion.
//
// How it works. The life of a group is a sequence of intervals, separated by barriers that all
// ranks pass together. Each rank has three staging buffers of chunk_bytes; what it writes in
// interval t goes to buffer t mod 3, and its peers read that in the intervals t+1 and t+2. A
// collective cuts its data into rounds of one chunk, and consecutive rounds overlap: while round i
// is copied in, round i-1 is reduced and round i-2 copied out, with one barrier per round and
// everything within the cache. A rank reduces only its own slice, reading all peers' buffers, in
// rank order (reduce_kernels.h), and never copies its own contribution.
//
// At the first barrier of a collective every rank has published its CallSignature; all compare
// them, so that a disagreement is an error on every rank and nothing is overwritten.
//
// Invariants:
//   1. All ranks make the same calls in the same order (send and receive excepted).
//   2. After an error the group is unusable: every later call fails or has undefined results.
// Units: counts are elements. Pointers are this rank's memory, aligned for the element type.
// Threads: one HostGroup per rank, used by one thread at a time.
// Errors: kUnavailable when a peer ended, left or did not come in time; kFailedPrecondition when
// the ranks disagree; both name the rank and the collective.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
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
  // Rank 0 of this group, as errors call it: ranks of several hosts have numbers of their own here.
  int first_name = 0;
  // Tells whether the ranks are processes (then the end of one is noticed) or threads of one
  // process.
  bool ranks_are_processes = true;
  // Per rank and staging buffer; a multiple of kMinChunkBytes, the same on all ranks. Larger ones
  // fall out of the cache, smaller ones wait more often. 0: DefaultChunkBytes.
  std::size_t chunk_bytes = 0;
  // The longest wait for a rank that neither ends nor comes.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

inline constexpr std::size_t kMinChunkBytes = kMaxLocalRanks * kCacheLine;
// 1 MiB for two ranks; less for more, so that all staging buffers together stay within 6 MiB, which
// the last-level cache of a small machine holds.
std::size_t DefaultChunkBytes(int size);

class HostGroup : public CpuGroup {
 public:
  static std::size_t RegionBytes(const HostGroupOptions& options);

  // Requires: region->bytes() >= RegionBytes(options); the region was zero before its first user.
  HostGroup(std::shared_ptr<SharedRegion> region, const HostGroupOptions& options);
  // Leaves the group: peers that still wait for this rank get an error.
  ~HostGroup() override;
  HostGroup(const HostGroup&) = delete;
  HostGroup& operator=(const HostGroup&) = delete;

  int rank() const override { return self_.rank; }
  int size() const override { return self_.size; }

  // The first call of ranks that are processes: blocks until all have joined.
  Status MeetPeers(std::chrono::milliseconds timeout);
  void TagNextCall(const CallTag& tag) override { next_tag_ = tag; }
  Status Barrier() override;
  Status AllReduce(std::byte* data, Elements elements, ReduceOp op) override;
  Status Reduce(std::byte* data, Elements elements, ReduceOp op, int root) override;
  Status ReduceScatter(std::byte* output, RankInputs inputs, Elements each, ReduceOp op) override;
  Status AllGather(RankOutputs outputs, const std::byte* input, Elements each) override;
  Status Broadcast(std::byte* data, Elements elements, int root) override;
  Status Gather(RankOutputs outputs, const std::byte* input, Elements each, int root) override;
  Status Scatter(std::byte* output, RankInputs inputs, Elements each, int root) override;
  Status AllToAll(const AllToAllParts& parts) override;
  // Send blocks while more than a ring of kChannelSlots slots is unread, and takes in what others
  // have sent meanwhile.
  Status Send(const std::byte* data, Elements elements, int peer) override;
  Status Receive(std::byte* data, Elements elements, int peer) override;

 private:
  std::string NameOf(int rank) const { return "rank " + std::to_string(first_name_ + rank); }

  struct Slice {
    std::size_t begin;
    std::size_t end;
  };
  Slice SliceOf(int rank, std::size_t count, std::size_t element_bytes) const;
  // Elements that fit the staging buffer (divided among all ranks if `shared_out`).
  std::size_t RoundElements(ElementType type, bool shared_out) const;
  std::byte* Staging(int rank, std::uint64_t interval) const;

  Status WaitForRoom(int peer, const CallSignature& call);
  void TakeIn(int peer);
  void MarkRead(int peer);

  Status PassBarrier(const CallSignature& call);
  Status PassFirstBarrier(const CallSignature& call);
  template <typename Fill, typename Take>
  Status RunRounds(const CallSignature& call, std::size_t rounds, Fill fill, Take take);
  Status ReduceToAllOrRoot(std::byte* data, Elements elements, const CallSignature& call);
  Status ExchangeCounts(const AllToAllParts& parts, std::uint64_t* largest);

  std::shared_ptr<SharedRegion> region_;
  GroupLayout layout_;
  RankOf self_;
  const int first_name_;
  GroupWait wait_;
  std::uint64_t interval_ = 0;  // barriers passed
  std::uint64_t calls_ = 0;     // collectives begun
  CallTag next_tag_;
  std::vector<std::uint32_t> sent_;      // slots written so far, by peer
  std::vector<std::uint32_t> received_;  // slots read so far, by peer
  using KeptSlot = std::pair<CallSignature, std::vector<std::byte>>;
  std::vector<std::deque<KeptSlot>> kept_;  // of those the ones that Receive has yet to take
};

}  // namespace ds::comm
