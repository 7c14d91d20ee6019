#include "runtime/comm/join_job.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "runtime/comm/connect_world.h"
#include "runtime/comm/net/link_store.h"

namespace ds::comm {
namespace {

// Set by dsrun's --interface,
constexpr char kInterfaceVariable[] = "DSRUN_INTERFACE";
// and by its --lease_seconds, in jobs on several hosts.
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

}  // namespace ds::comm
