#pragma once

// ConnectNccl: forms an NCCL group from GPU ranks that are already connected by a control group on
// CPUs.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/net/ip_addresses.h"
#include "runtime/device/rank_device.h"

namespace ds::comm {

// Blocks until all ranks are connected. Returns kFailedPrecondition if two ranks use one GPU,
// kUnavailable if NCCL cannot start. Requires `device.cuda`. Subgroups are connected in the same
// way. Collective: all ranks of `control` call it.
StatusOr<std::unique_ptr<Communicator>> ConnectNccl(std::unique_ptr<Communicator> control,
                                                    const device::RankDevice& device,
                                                    std::chrono::milliseconds timeout);

// Rejects two ranks on one GPU and names both; NCCL would detect this only after a wait. `gpus`
// holds one entry per rank, which identifies the rank's GPU among all GPUs.
Status CheckGpusDiffer(const std::vector<std::string>& gpus);

// Returns the value of NCCL_SOCKET_IFNAME that makes NCCL use the interfaces that `wanted` names,
// or those with the addresses that it names. Returns kNotFound under the same conditions as
// ChooseAddresses. Pure.
StatusOr<std::string> NameInterfaceForNccl(const std::vector<LocalAddress>& all,
                                           const std::string& wanted);

}  // namespace ds::comm
