#pragma once

// ConnectNccl: GPU ranks that a control group connects on CPUs form the same group on NCCL.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/net/ip_addresses.h"
#include "runtime/device/rank_device.h"

namespace ds::comm {

// Blocks until all ranks have their connections. kFailedPrecondition when two ranks have one GPU,
// kUnavailable when NCCL cannot start. `device.cuda` is there. Groups of some of the ranks are made
// in the same way. Collective over `control`.
StatusOr<std::unique_ptr<Communicator>> ConnectNccl(std::unique_ptr<Communicator> control,
                                                    const device::RankDevice& device,
                                                    std::chrono::milliseconds timeout);

// Refuses two ranks on one GPU, which NCCL would find out after it has waited: names both. `gpus`:
// what tells each rank's GPU from all others.
Status CheckGpusDiffer(const std::vector<std::string>& gpus);

// The value that NCCL_SOCKET_IFNAME has to have so that NCCL uses the interfaces, or those with the
// addresses, that `wanted` names. kNotFound as ChooseAddresses. Pure.
StatusOr<std::string> NameInterfaceForNccl(const std::vector<LocalAddress>& all,
                                           const std::string& wanted);

}  // namespace ds::comm
