#pragma once

// JoinJob: this process joins the group of all ranks of its job, as dsrun's flags say: on the
// network interface of --interface, with the patience of --lease_seconds.

#include <memory>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/rank_identity.h"
#include "runtime/device/rank_device.h"
#include "runtime/rank/rank_reporter.h"

namespace ds::rank {

// `encrypt`: what goes between hosts. Errors are those of comm::ConnectWorld.
StatusOr<std::unique_ptr<comm::Communicator>> JoinJob(const comm::RankIdentity& identity,
                                                      const device::RankDevice& device,
                                                      const RankReporter& reporter, bool encrypt);

}  // namespace ds::rank
