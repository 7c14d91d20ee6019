#include "runtime/rank/join_job.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>

#include "runtime/comm/connect_world.h"
#include "runtime/rank/link_store.h"

namespace ds::rank {
namespace {

// Set by dsrun's --interface,
constexpr char kInterfaceVariable[] = "DSRUN_INTERFACE";
// and by its --lease_seconds, in jobs on several hosts.
constexpr char kLeaseVariable[] = "DSRUN_LEASE_SECONDS";

}  // namespace

StatusOr<std::unique_ptr<comm::Communicator>> JoinJob(const comm::RankIdentity& identity,
                                                      const device::RankDevice& device,
                                                      const RankReporter& reporter, bool encrypt) {
  comm::ConnectOptions options{.encrypt = encrypt};
  std::optional<LinkStore> store;
  if (reporter.link() != nullptr) options.store = &store.emplace(reporter.link());
  if (const char* const interface = std::getenv(kInterfaceVariable)) options.interface = interface;
  if (const char* const lease = std::getenv(kLeaseVariable)) {
    options.silence = std::chrono::seconds(std::max(1L, std::lround(std::atof(lease))));
  }
  return comm::ConnectWorld(identity, device, options);
}

}  // namespace ds::rank
