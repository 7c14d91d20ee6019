#include "runtime/comm/connect_world.h"

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "runtime/comm/host_backend.h"
#include "runtime/comm/join_ranks.h"
#include "runtime/comm/shm/group_layout.h"

namespace ds::comm {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

// Ranks that do not meet are no bug: says so instead of throwing.
template <typename F>
auto ConvertErrors(const std::string& what, F body) -> decltype(body()) {
  try {
    return body();
  } catch (const c10::Error& error) {
    return UnavailableError(what + ": " + error.what_without_backtrace());
  }
}

StatusOr<StorePtr> OpenStore(const RankIdentity& identity, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(identity.master_port);
  options.isServer = identity.rank == 0;
  options.numWorkers = static_cast<std::size_t>(identity.world_size);
  options.waitWorkers = false;
  options.timeout = timeout;
  const std::string where = identity.master_addr + " port " + std::to_string(identity.master_port);
  return ConvertErrors(
      "rank " + std::to_string(identity.rank) + " cannot meet the others at " + where,
      [&]() -> StatusOr<StorePtr> {
        return StorePtr(c10::make_intrusive<c10d::TCPStore>(identity.master_addr, options));
      });
}

StatusOr<std::unique_ptr<Communicator>> ConnectHost(const RankIdentity& identity,
                                                    const ConnectOptions& options) {
  DS_ASSIGN_OR_RETURN(std::unique_ptr<CpuGroup> group, JoinRanks(identity, options));
  return std::make_unique<Communicator>(c10::make_intrusive<HostBackend>(std::move(group)));
}

StatusOr<std::unique_ptr<Communicator>> ConnectNccl(const RankIdentity& identity,
                                                    const device::RankDevice& device,
                                                    const ConnectOptions& options) {
  std::unique_ptr<Communicator> control;  // none where ranks cannot meet: NCCL carries it all
  const bool on_one_host = identity.local_world_size == identity.world_size;
  if (options.encrypt && !on_one_host) {
    return UnimplementedError(
        "NCCL does not encrypt what it sends to other hosts: leave --encrypt out on a network that "
        "you trust, or train on CPUs (--device cpu)");
  }
  if (identity.local_world_size <= kMaxLocalRanks && (on_one_host || options.store != nullptr)) {
    DS_ASSIGN_OR_RETURN(control, ConnectHost(identity, options));
  }
  DS_ASSIGN_OR_RETURN(const StorePtr store, OpenStore(identity, options.connect_timeout));
  return ConvertErrors("starting NCCL", [&]() -> StatusOr<std::unique_ptr<Communicator>> {
    return std::make_unique<Communicator>(
        device.cuda->MakeNccl(store, {.rank = identity.rank,
                                      .size = identity.world_size,
                                      .timeout = *options.collective_timeout}),
        device.device, std::move(control));
  });
}

}  // namespace

StatusOr<std::unique_ptr<Communicator>> ConnectWorld(const RankIdentity& identity,
                                                     const device::RankDevice& device,
                                                     const ConnectOptions& options) {
  ConnectOptions resolved = options;
  if (!resolved.collective_timeout.has_value()) {
    DS_ASSIGN_OR_RETURN(resolved.collective_timeout, CollectiveTimeoutFromEnvironment());
  }
  if (device.cuda != nullptr) return ConnectNccl(identity, device, resolved);
  return ConnectHost(identity, resolved);
}

}  // namespace ds::comm
