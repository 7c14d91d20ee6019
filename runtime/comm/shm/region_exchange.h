#pragma once

// ExchangeRegion gives the ranks of one host the same SharedRegion.
//
// Rank 0 makes the region and listens on a socket of the abstract unix namespace, whose name leaves
// nothing in any file system; each other rank connects, says who it is, and is handed the region's
// descriptor. Both sides refuse a process of another user. No name service is asked, and a rank
// that comes before rank 0 looks again every few milliseconds.

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

struct MeetingPlace {
  std::string name;  // the same for all ranks of the group, and for no other group on this host
  RankOf self;
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // Tells what the ranks meet for; a rank that comes for something else is named.
  CallSignature purpose = {};
  // The ranks' numbers in errors, where they are not those here.
  std::vector<int> names = {};
  // Called several times a second while waiting; an error ends the wait. May be empty.
  std::function<Status()> look_around = {};
};

// Blocks until this rank has the region; rank 0: until every rank has asked for it. kUnavailable,
// with the ranks that are missing, when the time is up; kFailedPrecondition when ranks contradict
// one another.
StatusOr<SharedRegion> ExchangeRegion(const MeetingPlace& place, std::size_t bytes);

}  // namespace ds::comm
