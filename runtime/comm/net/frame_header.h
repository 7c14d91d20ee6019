#pragma once

// FrameHeader: what goes over the wire in front of a frame's bytes (peer_link.h).

#include <cstdint>

#include "runtime/comm/shm/call_signature.h"

namespace ds::comm {

enum class FrameChannel : std::uint32_t {
  kCollective = 0,
  kMessage = 1,
  kEnd = 2,    // the bytes say why the sender has ended everything; nothing follows
  kWaits = 3,  // no bytes: the sender has waited for somebody for long, and still does
};

// Tells groups apart whose ranks use the same connections (world_group.h).
using GroupId = std::uint64_t;

// Plain data, as it goes over the wire.
struct FrameHeader {
  std::uint64_t bytes = 0;
  GroupId group = 0;
  FrameChannel channel = FrameChannel::kCollective;
  CallSignature call = {};
};

}  // namespace ds::comm
