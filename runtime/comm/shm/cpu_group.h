#pragma once

// CpuGroup: the collectives of one group of CPU ranks over plain memory, wherever its ranks are:
// on one host (host_group.h) or on several (net/world_group.h).
//
// All ranks make the same calls in the same order (send and receive excepted). Reductions add in
// rank order; bf16 and fp16 are widened to fp32, reduced and rounded once. After an error the group
// is unusable.
//
// Units: counts are elements. Pointers are this rank's memory, aligned for the element type.
// Threads: one at a time; Abort may be called from any, meanwhile too.
// Errors: kUnavailable when a peer ended, left or did not come in time; kFailedPrecondition when
// the ranks disagree; both name the rank and the collective.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/shm/call_signature.h"
#include "runtime/comm/shm/group_family.h"

namespace ds::comm {

struct Elements {
  std::size_t count = 0;
  ElementType type = ElementType::kUInt8;

  std::size_t bytes() const { return count * ElementBytes(type); }
};

// One pointer per rank.
using RankOutputs = std::span<std::byte* const>;
using RankInputs = std::span<const std::byte* const>;

// Memory and counts of what goes to (comes from) each rank, of one element type.
struct AllToAllParts {
  RankOutputs outputs;
  std::span<const std::uint64_t> output_counts;
  RankInputs inputs;
  std::span<const std::uint64_t> input_counts;
  ElementType type;
};

// Messages of SendReceive.
struct OutgoingMessage {
  const std::byte* data = nullptr;
  Elements elements;
  int peer = 0;
};
struct IncomingMessage {
  std::byte* data = nullptr;
  Elements elements;
  int peer = 0;
};

// Counts what a rank has exchanged with other hosts, headers included.
struct BytesBetweenHosts {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

class CpuGroup {
 public:
  virtual ~CpuGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Tells whether ranks of several hosts are in it.
  virtual bool spans_hosts() const { return false; }
  // Counts those of this group and all others of its family so far; zero where it does not span
  // hosts. From any thread.
  virtual BytesBetweenHosts bytes_between_hosts() const { return {}; }
  // Counts this rank's part of the memory that the ranks of a host share.
  virtual std::size_t shared_bytes() const = 0;
  // Says what errors call a rank: "rank 3", by its number in the job.
  virtual std::string NameOf(int rank) const = 0;

  // Makes `tag` a part of the next call's signature: of both messages of SendReceive.
  virtual void TagNextCall(const CallTag& tag) = 0;
  virtual Status Barrier() = 0;
  // In place.
  virtual Status AllReduce(std::byte* data, Elements elements, ReduceOp op) = 0;
  // Only the root's data changes.
  virtual Status Reduce(std::byte* data, Elements elements, ReduceOp op, int root) = 0;
  // `each`: what every rank gets. inputs[r] is reduced for rank r; `output` may be inputs[rank].
  virtual Status ReduceScatter(std::byte* output, RankInputs inputs, Elements each,
                               ReduceOp op) = 0;
  // `each`: what every rank gives. `input` may be outputs[rank].
  virtual Status AllGather(RankOutputs outputs, const std::byte* input, Elements each) = 0;
  virtual Status Broadcast(std::byte* data, Elements elements, int root) = 0;
  // `outputs` is used on the root only, `inputs` of Scatter likewise.
  virtual Status Gather(RankOutputs outputs, const std::byte* input, Elements each, int root) = 0;
  virtual Status Scatter(std::byte* output, RankInputs inputs, Elements each, int root) = 0;
  virtual Status AllToAll(const AllToAllParts& parts) = 0;

  // Matched in order between two ranks. All ranks may send before they receive.
  virtual Status Send(const std::byte* data, Elements elements, int peer) = 0;
  virtual Status Receive(std::byte* data, Elements elements, int peer) = 0;
  // Does both at once, so that ranks may do it in a ring or a line whatever the size of the
  // messages.
  virtual Status SendReceive(const OutgoingMessage& outgoing, const IncomingMessage& incoming) = 0;

  // The group of `members`, ranks of this group in ascending order, this one among them, who number
  // themselves by their place in that list. Collective among them alone: all make the same groups
  // in the same order. kFailedPrecondition, with a rank that has other members under this name.
  virtual StatusOr<std::unique_ptr<CpuGroup>> MakeSubgroup(const std::string& name,
                                                           const std::vector<int>& members) = 0;

  // Ends this group and all others of this rank's family, for all their ranks: what they wait for
  // in them, and what they call later, fails at once with `cause`, a sentence that names the rank
  // at fault. The first failure counts. From any thread.
  void Abort(std::string_view cause) { family_->Abort(cause); }
  // Blocks until a rank has ended the group, and says why; "" when `stop` comes first. From any
  // thread, beside the calls.
  virtual std::string AwaitEnd(const std::stop_token& stop) = 0;

  // The groups that were made from this one, or that it was made from.
  const std::shared_ptr<GroupFamily>& family() const { return family_; }

 protected:
  explicit CpuGroup(std::shared_ptr<GroupFamily> family) : family_(std::move(family)) {}
  friend class GroupFamily;
  // Abort, of this group alone. From any thread.
  virtual void End(std::string_view cause) = 0;

 private:
  std::shared_ptr<GroupFamily> family_;
};

}  // namespace ds::comm
