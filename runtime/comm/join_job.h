#pragma once

// JoinJob: this process joins the group of all ranks of its job, as dsrun's flags say: on the
// network interface of --interface, with the patience of --lease_seconds.

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/rank_link.h"
#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/net/meeting_store.h"
#include "runtime/comm/rank_identity.h"
#include "runtime/device/rank_device.h"

namespace ds::comm {

// `link` is used while the ranks meet; without one (null) those of several hosts cannot. `encrypt`:
// what goes between hosts. Errors are those of ConnectWorld.
StatusOr<std::unique_ptr<Communicator>> JoinJob(const RankIdentity& identity,
                                                const device::RankDevice& device, RankLink* link,
                                                bool encrypt);

// ConnectWorld: this process joins the group of all ranks of its job.
//
// CPU ranks use the host backend: those of a host meet at a unix socket and share memory, hosts
// meet through a store and are connected by TCP. GPU ranks form the same group,
// which is their control group, and then one on NCCL (connect_nccl.h).

struct ConnectOptions {
  // Ranks of several hosts meet there; it may be null on one host, and is used while connecting
  // only.
  MeetingStore* store = nullptr;
  // The network interface or address for what goes between hosts, or a list of them that carry it
  // together ("eth0,eth1"); "": any that leads there.
  std::string interface;
  // Encrypt that. The same on all ranks; NCCL cannot.
  bool encrypt = false;
  // The longest wait for all ranks to appear.
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(5);
  // The longest wait of a collective for a rank that is alive but does not come; none: that of the
  // environment (rank_identity.h).
  std::optional<std::chrono::milliseconds> collective_timeout = {};
  // The longest wait for another host of CPU ranks that does not answer at all.
  std::chrono::seconds silence{60};
};

// Blocks until all ranks have joined. kUnavailable when some do not come in time or end while the
// others wait; kUnauthenticated when one has not the job's key.
StatusOr<std::unique_ptr<Communicator>> ConnectWorld(const RankIdentity& identity,
                                                     const device::RankDevice& device,
                                                     const ConnectOptions& options = {});

}  // namespace ds::comm
