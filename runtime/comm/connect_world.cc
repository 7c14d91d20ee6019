#include "runtime/comm/connect_world.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "runtime/comm/connect_nccl.h"
#include "runtime/comm/host_backend.h"
#include "runtime/comm/join_ranks.h"
#include "runtime/comm/net/ip_addresses.h"

namespace ds::comm {
namespace {

StatusOr<std::unique_ptr<Communicator>> ConnectHost(const RankIdentity& identity,
                                                    const ConnectOptions& options) {
  DS_ASSIGN_OR_RETURN(std::unique_ptr<CpuGroup> group, JoinRanks(identity, options));
  return std::make_unique<Communicator>(c10::make_intrusive<HostBackend>(std::move(group)));
}

// The user's own word for NCCL counts.
Status TellNcclTheInterface(const std::string& interface) {
  constexpr char kVariable[] = "NCCL_SOCKET_IFNAME";
  if (interface.empty() || std::getenv(kVariable) != nullptr) return OkStatus();
  DS_ASSIGN_OR_RETURN(const std::vector<LocalAddress> all, ListLocalAddresses());
  DS_ASSIGN_OR_RETURN(const std::string name, NameInterfaceForNccl(all, interface));
  ::setenv(kVariable, name.c_str(), /*overwrite=*/0);
  return OkStatus();
}

StatusOr<std::unique_ptr<Communicator>> ConnectGpus(const RankIdentity& identity,
                                                    const device::RankDevice& device,
                                                    const ConnectOptions& options) {
  const bool on_one_host = identity.local_world_size == identity.world_size;
  if (options.encrypt && !on_one_host) {
    return UnimplementedError(
        "NCCL does not encrypt what it sends to other hosts: leave --encrypt out on a network that "
        "you trust, or train on CPUs (--device cpu)");
  }
  if (!on_one_host) DS_RETURN_IF_ERROR(TellNcclTheInterface(options.interface));
  DS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> control, ConnectHost(identity, options));
  return ConnectNccl(std::move(control), device, *options.collective_timeout);
}

}  // namespace

StatusOr<std::unique_ptr<Communicator>> ConnectWorld(const RankIdentity& identity,
                                                     const device::RankDevice& device,
                                                     const ConnectOptions& options) {
  ConnectOptions resolved = options;
  if (!resolved.collective_timeout.has_value()) {
    DS_ASSIGN_OR_RETURN(resolved.collective_timeout, CollectiveTimeoutFromEnvironment());
  }
  if (device.cuda != nullptr) return ConnectGpus(identity, device, resolved);
  return ConnectHost(identity, resolved);
}

}  // namespace ds::comm
