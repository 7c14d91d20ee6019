#include "runtime/comm/connect_world.h"

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "runtime/comm/host_backend.h"
#include "runtime/comm/shm/region_exchange.h"

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

// The master port comes first: the daemon leases it to one job at a time.
std::string MeetingName(const RankIdentity& identity) {
  return "dsrun-ranks/" + std::to_string(identity.master_port) + "/" +
         std::to_string(identity.generation) + "/" + identity.job_id;
}

StatusOr<std::unique_ptr<HostGroup>> JoinHostGroup(const RankIdentity& identity,
                                                   const ConnectOptions& options) {
  HostGroupOptions group_options;
  group_options.self = {.rank = identity.rank, .size = identity.world_size};
  group_options.timeout = options.collective_timeout;
  const std::size_t bytes = HostGroup::RegionBytes(group_options);
  if (identity.world_size == 1) {
    DS_ASSIGN_OR_RETURN(SharedRegion region, SharedRegion::Private(bytes));
    return std::make_unique<HostGroup>(std::make_shared<SharedRegion>(std::move(region)),
                                       group_options);
  }
  const MeetingPlace place = {.name = MeetingName(identity),
                              .self = group_options.self,
                              .timeout = options.connect_timeout};
  StatusOr<SharedRegion> region = ExchangeRegion(place, bytes);
  if (!region.ok()) {
    return region.status().WithContext("rank " + std::to_string(identity.rank) +
                                       " cannot join the other ranks of this host");
  }
  auto group = std::make_unique<HostGroup>(
      std::make_shared<SharedRegion>(std::move(region).value()), group_options);
  DS_RETURN_IF_ERROR(group->MeetPeers(options.connect_timeout));
  return group;
}

bool CanShareMemory(const RankIdentity& identity) {
  return identity.local_world_size == identity.world_size && identity.world_size <= kMaxLocalRanks;
}

StatusOr<std::unique_ptr<Communicator>> ConnectHost(const RankIdentity& identity,
                                                    const ConnectOptions& options) {
  DS_ASSIGN_OR_RETURN(std::unique_ptr<HostGroup> group, JoinHostGroup(identity, options));
  return std::make_unique<Communicator>(c10::make_intrusive<HostBackend>(std::move(group)));
}

StatusOr<std::unique_ptr<Communicator>> ConnectNccl(const RankIdentity& identity,
                                                    const device::RankDevice& device,
                                                    const ConnectOptions& options) {
  std::unique_ptr<Communicator> control;  // none between hosts: NCCL carries it all
  if (CanShareMemory(identity)) {
    DS_ASSIGN_OR_RETURN(control, ConnectHost(identity, options));
  }
  DS_ASSIGN_OR_RETURN(const StorePtr store, OpenStore(identity, options.connect_timeout));
  return ConvertErrors("starting NCCL", [&]() -> StatusOr<std::unique_ptr<Communicator>> {
    return std::make_unique<Communicator>(
        device.cuda->MakeNccl(store, {.rank = identity.rank,
                                      .size = identity.world_size,
                                      .timeout = options.collective_timeout}),
        device.device, std::move(control));
  });
}

}  // namespace

StatusOr<std::unique_ptr<Communicator>> ConnectWorld(const RankIdentity& identity,
                                                     const device::RankDevice& device,
                                                     const ConnectOptions& options) {
  if (device.cuda != nullptr) return ConnectNccl(identity, device, options);
  if (identity.local_world_size != identity.world_size) {
    return UnimplementedError("CPU ranks must be on one host: this one has " +
                              std::to_string(identity.local_world_size) + " of " +
                              std::to_string(identity.world_size) + " ranks");
  }
  if (identity.world_size > kMaxLocalRanks) {
    return UnimplementedError("at most " + std::to_string(kMaxLocalRanks) +
                              " CPU ranks share a host, not " +
                              std::to_string(identity.world_size));
  }
  return ConnectHost(identity, options);
}

}  // namespace ds::comm
