#pragma once

// CpuGroup: the collectives of one group of CPU ranks over plain memory, wherever its ranks are:
// on one host (host_group.h) or on several (net/world_group.h).
//
// All ranks make the same calls in the same order (send and receive excepted). Reductions add in
// rank order; bf16 and fp16 are widened to fp32, reduced and rounded once. After an error the group
// is unusable.
//
// Units: counts are elements. Pointers are this rank's memory, aligned for the element type.
// Threads: one at a time.
// Errors: kUnavailable when a peer ended, left or did not come in time; kFailedPrecondition when
// the ranks disagree; both name the rank and the collective.

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/status.h"
#include "runtime/comm/shm/call_signature.h"

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

class CpuGroup {
 public:
  virtual ~CpuGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Makes `tag` a part of the next collective's signature.
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
};

}  // namespace ds::comm
