#pragma once

// ConnectWorld: this process joins the group of all ranks of its job.
//
// CPU ranks, all on one host, meet at a unix socket and share memory (host backend). GPU ranks meet
// at a c10d::TCPStore that rank 0 serves on master_port and use NCCL; those of one host also share
// memory, as their control group.

#include <chrono>
#include <memory>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/rank_identity.h"
#include "runtime/device/rank_device.h"

namespace ds::comm {

struct ConnectOptions {
  // The longest wait for all ranks to appear.
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(5);
  // The longest wait of a collective for a rank that is alive but does not come.
  std::chrono::milliseconds collective_timeout = std::chrono::minutes(30);
};

// Blocks until all ranks have joined. kUnavailable when some do not come in time or end while the
// others wait; kUnimplemented for CPU ranks on several hosts.
StatusOr<std::unique_ptr<Communicator>> ConnectWorld(const RankIdentity& identity,
                                                     const device::RankDevice& device,
                                                     const ConnectOptions& options = {});

}  // namespace ds::comm
