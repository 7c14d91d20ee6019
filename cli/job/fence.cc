#include "cli/job/fence.h"

#include <algorithm>

#include "proto/lease.h"

namespace ds::cli {

Fence::Fence(Time lease, Time grace)
    : timeout_(lease + ::dsrun::v1::LeaseGrace(grace) + ::dsrun::v1::kLeaseKillAfter +
               ::dsrun::v1::kLeaseCleanUp) {}

void Fence::Add(const std::string& host, Time lease_from) {
  hosts_.push_back({host, lease_from + timeout_});
}

Fence::Time Fence::opens() const {
  Time last{0};
  for (const GivenUp& each : hosts_) last = std::max(last, each.ended);
  return last;
}

std::string Fence::Explain(Time now) const {
  std::string names;
  for (const GivenUp& each : hosts_) {
    if (each.ended > now) names += (names.empty() ? "" : ", ") + each.host;
  }
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(Remaining(now)).count();
  return "waiting " + std::to_string(seconds) + " s before the restart: ranks on " + names +
         " may still run, until the lease of their daemon is over and has ended them";
}

}  // namespace ds::cli
