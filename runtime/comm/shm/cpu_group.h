#pragma once

// CpuGroup: the collectives of one group of CPU ranks over plain memory. The ranks are on one host
// (host_group.h) or on several (net/world_group.h).
//
// All ranks make the same calls in the same order (send and receive excepted). Reductions add in
// rank order; bf16 and fp16 are converted to fp32, reduced and rounded once. After an error the
// group is unusable.
//
// Units: counts are elements. Pointers are this rank's memory, aligned for the element type. Not
// thread-safe, except that Abort may be called from any thread, also during a call. Errors:
// kUnavailable when a peer ended, left or did not arrive in time; kFailedPrecondition when the
// ranks disagree. Both name the rank and the collective.

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

// These hold one pointer per rank.
using RankOutputs = std::span<std::byte* const>;
using RankInputs = std::span<const std::byte* const>;

// Memory and counts of the data sent to and received from each rank, of one element type.
struct AllToAllBuffers {
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

// Bytes that a rank has exchanged with other hosts, headers included.
struct BytesBetweenHosts {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

class CpuGroup {
 public:
  virtual ~CpuGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Returns whether the group has ranks on several hosts.
  virtual bool spans_hosts() const { return false; }
  // Returns the bytes of this group and all other groups of its family so far; zero if the group
  // does not span hosts. Thread-safe.
  virtual BytesBetweenHosts bytes_between_hosts() const { return {}; }
  // Returns this rank's share of the memory that the ranks of a host share.
  virtual std::size_t shared_bytes() const = 0;
  // Returns the rank's name in errors: "rank 3", with its number in the job.
  virtual std::string NameOf(int rank) const = 0;

  // Adds `tag` to the signature of the next call; SendReceive adds it to both messages.
  virtual void TagNextCall(const CallTag& tag) = 0;
  virtual Status Barrier() = 0;
  // Reduces in place.
  virtual Status AllReduce(std::byte* data, Elements elements, ReduceOp op) = 0;
  // Only the root's data changes.
  virtual Status Reduce(std::byte* data, Elements elements, ReduceOp op, int root) = 0;
  // `each` is the size of every rank's result. inputs[r] is reduced for rank r; `output` may be
  // inputs[rank].
  virtual Status ReduceScatter(std::byte* output, RankInputs inputs, Elements each,
                               ReduceOp op) = 0;
  // `each` is the size of every rank's input. `input` may be outputs[rank].
  virtual Status AllGather(RankOutputs outputs, const std::byte* input, Elements each) = 0;
  virtual Status Broadcast(std::byte* data, Elements elements, int root) = 0;
  // `outputs` of Gather and `inputs` of Scatter are used on the root only.
  virtual Status Gather(RankOutputs outputs, const std::byte* input, Elements each, int root) = 0;
  virtual Status Scatter(std::byte* output, RankInputs inputs, Elements each, int root) = 0;
  virtual Status AllToAll(const AllToAllBuffers& parts) = 0;

  // Messages between two ranks are matched in order. All ranks may send before they receive.
  virtual Status Send(const std::byte* data, Elements elements, int peer) = 0;
  virtual Status Receive(std::byte* data, Elements elements, int peer) = 0;
  // Sends and receives at the same time, so that ranks may call it in a ring or a line with
  // messages of any size.
  virtual Status SendReceive(const OutgoingMessage& outgoing, const IncomingMessage& incoming) = 0;

  // Returns the group of `members`: ranks of this group in ascending order, including this rank.
  // Their ranks in the new group are their indexes in the list. Collective among the members only:
  // they make the same groups in the same order. Returns kFailedPrecondition and names a rank that
  // has other members under this name.
  virtual StatusOr<std::unique_ptr<CpuGroup>> MakeSubgroup(const std::string& name,
                                                           const std::vector<int>& members) = 0;

  // Ends this group and all others of this rank's family, for all their ranks. Pending and later
  // calls fail at once with `cause`, a sentence that names the rank at fault. The first failure
  // counts. Thread-safe.
  void Abort(std::string_view cause) { family_->Abort(cause); }
  // Blocks until a rank has ended the group and returns the cause; returns "" if `stop` is
  // requested first. Thread-safe; may run in parallel with calls.
  virtual std::string AwaitEnd(const std::stop_token& stop) = 0;

  // Returns the family of groups that were made from this group or that this group was made from.
  const std::shared_ptr<GroupFamily>& family() const { return family_; }

 protected:
  explicit CpuGroup(std::shared_ptr<GroupFamily> family) : family_(std::move(family)) {}
  friend class GroupFamily;
  // Implements Abort for this group alone. Thread-safe.
  virtual void End(std::string_view cause) = 0;

 private:
  std::shared_ptr<GroupFamily> family_;
};

}  // namespace ds::comm
