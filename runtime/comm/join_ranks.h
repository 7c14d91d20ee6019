#pragma once

// JoinRanks: the group of all CPU ranks of a job. Those of a host meet at a unix socket and share
// memory; hosts meet through a store and are connected rank by rank (net/connect_peers.h).

#include <memory>

#include "runtime/base/status.h"
#include "runtime/comm/connect_world.h"
#include "runtime/comm/rank_identity.h"
#include "runtime/comm/shm/cpu_group.h"

namespace ds::comm {

// Blocks until all ranks have joined. `options.collective_timeout` is there. Errors are those of
// ConnectWorld.
StatusOr<std::unique_ptr<CpuGroup>> JoinRanks(const RankIdentity& identity,
                                              const ConnectOptions& options);

}  // namespace ds::comm
