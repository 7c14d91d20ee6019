#pragma once

// JoinJob: this process joins the group of all ranks of its job, as dsrun's flags say: on the
// network interface of --interface, with the patience of --lease_seconds.

#include <memory>

#include "runtime/base/rank_link.h"
#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/rank_identity.h"
#include "runtime/device/rank_device.h"

namespace ds::comm {

// `link` is used while the ranks meet; without one (null) those of several hosts cannot. `encrypt`:
// what goes between hosts. Errors are those of ConnectWorld.
StatusOr<std::unique_ptr<Communicator>> JoinJob(const RankIdentity& identity,
                                                const device::RankDevice& device, RankLink* link,
                                                bool encrypt);

}  // namespace ds::comm
