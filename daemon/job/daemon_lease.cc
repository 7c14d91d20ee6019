#include "daemon/job/daemon_lease.h"

#include <algorithm>

#include "proto/lease.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

Status DaemonLease::OnRenewal(Time answered, Time now) {
  if (answered < Time(0) || answered > now) return InvalidArgumentError("no such answer was given");
  from_ = std::max(from_, answered);
  return OkStatus();
}

DaemonLease::Time DaemonLease::death() const {
  return end() + v1::LeaseGrace(grace_) + v1::kLeaseKillAfter;
}

}  // namespace ds::daemon
