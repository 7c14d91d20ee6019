#pragma once

// FrameHeader: precedes a frame's bytes on the wire (peer_link.h).

#include <cstdint>

#include "runtime/comm/shm/call_signature.h"

namespace ds::comm {

enum class FrameChannel : std::uint32_t {
  kCollective = 0,
  kMessage = 1,
  kEnd = 2,    // the bytes hold the reason why the sender has ended everything; no frame follows
  kWaits = 3,  // no bytes: the sender has waited for a rank for long, and still waits
};

// Identifies a group among those that share the same connections (world_group.h).
using GroupId = std::uint64_t;

// Plain data, sent as it is in memory.
struct FrameHeader {
  std::uint64_t bytes = 0;
  GroupId group = 0;
  FrameChannel channel = FrameChannel::kCollective;
  CallSignature call = {};
};

}  // namespace ds::comm
