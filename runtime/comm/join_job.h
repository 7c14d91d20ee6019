#pragma once

// JoinJob: joins the group of all ranks of this process's job. It uses dsrun's flags: the network
// interface of --interface and the timeout of --lease_seconds.

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

// `link` is used while the ranks meet. It may be null only if all ranks are on one host. `encrypt`
// encrypts traffic between hosts. Returns the errors of ConnectWorld.
StatusOr<std::unique_ptr<Communicator>> JoinJob(const RankIdentity& identity,
                                                const device::RankDevice& device, RankLink* link,
                                                bool encrypt);

// ConnectWorld: joins the group of all ranks of this process's job.
//
// CPU ranks use the host backend: ranks of one host meet at a unix socket and share memory; hosts
// meet through a store and connect by TCP. GPU ranks form the same group as their control group,
// and then an NCCL group (connect_nccl.h).

struct ConnectOptions {
  // Rendezvous store for ranks of several hosts. May be null on one host. Used only while
  // connecting.
  MeetingStore* store = nullptr;
  // Network interface or address for traffic between hosts, or a list of interfaces that carry it
  // together ("eth0,eth1"). "" selects any that leads there.
  std::string interface;
  // Encrypts traffic between hosts. Must be the same on all ranks. NCCL does not support it.
  bool encrypt = false;
  // Timeout for all ranks to appear.
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(5);
  // Timeout of a collective for a rank that is alive but does not arrive. Without a value the
  // environment decides (rank_identity.h).
  std::optional<std::chrono::milliseconds> collective_timeout = {};
  // Timeout for another host of CPU ranks that does not answer at all.
  std::chrono::seconds silence{60};
};

// Blocks until all ranks have joined. Returns kUnavailable if some ranks do not arrive in time or
// end during the wait, kUnauthenticated if a rank does not have the job's key.
StatusOr<std::unique_ptr<Communicator>> ConnectWorld(const RankIdentity& identity,
                                                     const device::RankDevice& device,
                                                     const ConnectOptions& options = {});

}  // namespace ds::comm
