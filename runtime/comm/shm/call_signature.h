#pragma once

// CallSignature: what a rank is about to do, published so that its peers can compare.

#include <cstdint>
#include <string>

#include "runtime/comm/shm/element_type.h"
#include "runtime/comm/shm/reduce_op.h"

namespace ds::comm {

enum class CallKind : std::uint8_t {
  kBarrier,
  kAllReduce,
  kReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kGather,
  kScatter,
  kAllToAll,
  kSend,
  kRecv,
};

// Lies in shared memory: plain data only.
struct CallSignature {
  CallKind kind = CallKind::kBarrier;
  ElementType type = ElementType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  std::int32_t root = -1;   // or the peer of a send or receive; -1: none
  std::uint64_t count = 0;  // elements, as the collective counts them (see host_group.h)

  friend bool operator==(const CallSignature&, const CallSignature&) = default;
};

// "all-reduce of 1024 float32 (sum)", "broadcast of 3 int64 from rank 0", "barrier".
std::string Describe(const CallSignature& call);

}  // namespace ds::comm
