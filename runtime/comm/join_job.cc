#include "runtime/comm/join_job.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/host_name.h"
#include "runtime/base/rank_link.h"
#include "runtime/base/status.h"
#include "runtime/comm/connect_nccl.h"
#include "runtime/comm/host_backend.h"
#include "runtime/comm/net/connect_peers.h"
#include "runtime/comm/net/ip_addresses.h"
#include "runtime/comm/net/link_store.h"
#include "runtime/comm/net/world_group.h"
#include "runtime/comm/rank_identity.h"
#include "runtime/comm/shm/cpu_group.h"
#include "runtime/comm/shm/host_group.h"
#include "runtime/comm/shm/region_exchange.h"

namespace ds::comm {
namespace {

// Set by dsrun's --interface.
constexpr char kInterfaceVariable[] = "DSRUN_INTERFACE";
// Set by dsrun's --lease_seconds, in jobs on several hosts.
constexpr char kLeaseVariable[] = "DSRUN_LEASE_SECONDS";

}  // namespace

StatusOr<std::unique_ptr<Communicator>> JoinJob(const RankIdentity& identity,
                                                const device::RankDevice& device, RankLink* link,
                                                bool encrypt) {
  ConnectOptions options{.encrypt = encrypt};
  std::optional<LinkStore> store;
  if (link != nullptr) options.store = &store.emplace(link);
  if (const char* const interface = std::getenv(kInterfaceVariable)) options.interface = interface;
  if (const char* const lease = std::getenv(kLeaseVariable)) {
    options.silence = std::chrono::seconds(std::max(1L, std::lround(std::atof(lease))));
  }
  return ConnectWorld(identity, device, options);
}

namespace {

int FirstRankHere(const RankIdentity& identity) { return identity.rank - identity.local_rank; }

// Returns a name that starts with the master port, because the daemon leases a port to one job at a
// time. Several hosts of a job may be one machine.
std::string MeetingName(const RankIdentity& identity) {
  return "dsrun-ranks/" + std::to_string(identity.master_port) + "/" +
         std::to_string(identity.generation) + "/" + std::to_string(FirstRankHere(identity)) + "/" +
         identity.job_id;
}

StatusOr<std::unique_ptr<HostGroup>> JoinHost(const RankIdentity& identity,
                                              const ConnectOptions& options) {
  HostGroupOptions group_options;
  group_options.self = {.rank = identity.local_rank, .size = identity.local_world_size};
  group_options.names.resize(static_cast<std::size_t>(identity.local_world_size));
  std::iota(group_options.names.begin(), group_options.names.end(), FirstRankHere(identity));
  group_options.timeout = *options.collective_timeout;
  group_options.meeting = MeetingName(identity);
  const std::size_t bytes = HostGroup::RegionBytes(group_options);
  if (identity.local_world_size == 1) {
    DS_ASSIGN_OR_RETURN(SharedRegion region, SharedRegion::Private(bytes));
    return std::make_unique<HostGroup>(std::make_shared<SharedRegion>(std::move(region)),
                                       group_options);
  }
  const Rendezvous rendezvous = {.name = MeetingName(identity),
                                 .self = group_options.self,
                                 .timeout = options.connect_timeout};
  StatusOr<SharedRegion> region = ExchangeRegion(rendezvous, bytes);
  if (!region.ok()) {
    return region.status().WithContext("rank " + std::to_string(identity.rank) +
                                       " cannot join the other ranks of this host");
  }
  auto group = std::make_unique<HostGroup>(
      std::make_shared<SharedRegion>(std::move(region).value()), group_options);
  DS_RETURN_IF_ERROR(group->MeetPeers(options.connect_timeout));
  return group;
}

std::string RecordKey(int rank) { return "ranks/" + std::to_string(rank); }

// Returns every rank's record, by rank.
StatusOr<std::vector<PeerRecord>> ExchangeRecords(const RankIdentity& identity,
                                                  const PeerListener& listener,
                                                  const ConnectOptions& options) {
  const PeerRecord mine{.local_rank = identity.local_rank,
                        .local_size = identity.local_world_size,
                        .host = HostName(),
                        .endpoints = listener.endpoints()};
  DS_RETURN_IF_ERROR(options.store->Put(RecordKey(identity.rank), ToJson(mine)));
  std::vector<PeerRecord> records;
  for (int rank = 0; rank < identity.world_size; ++rank) {
    const auto text = options.store->Get(RecordKey(rank), options.connect_timeout);
    if (!text.ok()) {
      return UnavailableError("rank " + std::to_string(rank) +
                              " has not reported its address: " + text.status().message());
    }
    DS_ASSIGN_OR_RETURN(PeerRecord record, PeerRecordFromJson(*text));
    records.push_back(std::move(record));
  }
  return records;
}

// Returns the ranks' hosts if ranks are numbered host by host; none if the records contradict that.
std::optional<RankLocations> PlacesOf(const std::vector<PeerRecord>& records) {
  std::vector<int> counts;
  int local = 0;
  for (const PeerRecord& record : records) {
    if (local == 0) counts.push_back(record.local_size);
    if (record.local_rank != local || record.local_size != counts.back()) return std::nullopt;
    local = local + 1 == counts.back() ? 0 : local + 1;
  }
  if (local != 0) return std::nullopt;
  return RankLocations(counts);
}

StatusOr<std::unique_ptr<PeerLinks>> LinkPeers(const RankIdentity& identity,
                                               const ConnectOptions& options,
                                               std::optional<RankLocations>* layout) {
  DS_RETURN_IF_ERROR(RefuseRdmaDevices(options.interface));
  DS_ASSIGN_OR_RETURN(const std::vector<LocalAddress> all, ListLocalAddresses());
  DS_ASSIGN_OR_RETURN(const std::vector<LocalAddress> addresses,
                      ChooseAddresses(all, options.interface));
  DS_ASSIGN_OR_RETURN(const PeerListener listener, PeerListener::Open(addresses));
  DS_ASSIGN_OR_RETURN(const std::vector<PeerRecord> records,
                      ExchangeRecords(identity, listener, options));
  *layout = PlacesOf(records);
  if (!layout->has_value()) {
    return FailedPreconditionError(
        "the ranks' LOCAL_RANK and LOCAL_WORLD_SIZE do not fit their RANK");
  }
  DS_ASSIGN_OR_RETURN(const std::string key,
                      options.store->Get(kRankKeyName, options.connect_timeout));
  DS_ASSIGN_OR_RETURN(std::vector<PeerLinks::Peer> peers,
                      ConnectPeers({.rank = identity.rank,
                                    .key = key,
                                    .addresses = addresses,
                                    .encrypt = options.encrypt,
                                    .timeout = options.connect_timeout},
                                   listener, records));
  return std::make_unique<PeerLinks>(std::move(peers), *options.collective_timeout,
                                     options.silence);
}

// Connects the group of all CPU ranks of a job. Ranks of one host meet at a unix socket and share
// memory. Hosts meet through a store and connect rank by rank (net/connect_peers.h). Blocks until
// all ranks have joined. Requires `options.collective_timeout`. Returns the errors of ConnectWorld.
StatusOr<std::unique_ptr<CpuGroup>> JoinRanks(const RankIdentity& identity,
                                              const ConnectOptions& options) {
  if (identity.local_world_size > kMaxLocalRanks) {
    return UnimplementedError("at most " + std::to_string(kMaxLocalRanks) +
                              " ranks share a host, not " +
                              std::to_string(identity.local_world_size));
  }
  const bool on_one_host = identity.local_world_size == identity.world_size;
  if (!on_one_host && options.store == nullptr) {
    return FailedPreconditionError("ranks on several hosts meet through dsrun: start them with it");
  }
  DS_ASSIGN_OR_RETURN(std::unique_ptr<HostGroup> host, JoinHost(identity, options));
  if (on_one_host) return std::unique_ptr<CpuGroup>(std::move(host));
  std::optional<RankLocations> layout;
  DS_ASSIGN_OR_RETURN(std::unique_ptr<PeerLinks> links, LinkPeers(identity, options, &layout));
  return std::unique_ptr<CpuGroup>(
      std::make_unique<WorldGroup>(std::move(host), std::move(links),
                                   WorldGroupOptions{.rank = identity.rank, .layout = *layout}));
}

StatusOr<std::unique_ptr<Communicator>> ConnectHost(const RankIdentity& identity,
                                                    const ConnectOptions& options) {
  DS_ASSIGN_OR_RETURN(std::unique_ptr<CpuGroup> group, JoinRanks(identity, options));
  return std::make_unique<Communicator>(c10::make_intrusive<HostBackend>(std::move(group)));
}

// Sets NCCL's interface, unless the user has set it.
Status SetNcclInterface(const std::string& interface) {
  constexpr char kVariable[] = "NCCL_SOCKET_IFNAME";
  if (interface.empty() || std::getenv(kVariable) != nullptr) return OkStatus();
  DS_RETURN_IF_ERROR(RefuseRdmaDevices(interface));
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
        "NCCL does not encrypt traffic to other hosts: leave --encrypt out on a network that you "
        "trust, or train on CPUs (--device cpu)");
  }
  if (!on_one_host) DS_RETURN_IF_ERROR(SetNcclInterface(options.interface));
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
