#pragma once

// ExchangeRegion gives the ranks of one host the same SharedRegion.
//
// Rank 0 creates the region and listens on a socket of the abstract unix namespace, which leaves no
// file behind. Each other rank connects, sends its identity, and receives the region's descriptor.
// Both sides reject processes of another user. No name service is used. A rank that arrives before
// rank 0 retries every few milliseconds.

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/shm/call_signature.h"
#include "runtime/comm/shm/group_wait.h"
#include "runtime/comm/shm/shared_region.h"

namespace ds::comm {

struct Rendezvous {
  std::string name;  // the same for all ranks of the group, and unique on this host
  RankOf self;
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // Purpose of the meeting; a rank that arrives with another purpose is named in the error.
  CallSignature purpose = {};
  // The ranks' numbers in errors, if they differ from those here.
  std::vector<int> names = {};
  // Called several times a second while waiting; an error ends the wait. May be empty.
  std::function<Status()> look_around = {};
};

// Blocks until this rank has the region, and on rank 0 until every rank has requested it. Returns
// kUnavailable with the missing ranks after the timeout, kFailedPrecondition if ranks contradict
// each other.
StatusOr<SharedRegion> ExchangeRegion(const Rendezvous& rendezvous, std::size_t bytes);

}  // namespace ds::comm
