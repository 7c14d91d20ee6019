#include "daemon/job/daemon_duty.h"

#include <algorithm>
#include <string>

#include "proto/lease.h"

namespace ds::daemon {

Status DaemonDuty::OnRenewal(Time answered, Time now) {
  if (answered < Time(0) || answered > now) return InvalidArgumentError("no such answer was given");
  lease_from_ = std::max(lease_from_, answered);
  return OkStatus();
}

DaemonDuty::Time DaemonDuty::death() const {
  return end_of_lease() + v1::LeaseGrace(grace_) + v1::kLeaseKillAfter;
}

Status DaemonDuty::CheckNewWork() const {
  return finishing_ ? UnavailableError("this daemon is ending") : OkStatus();
}

Status DaemonDuty::CheckLaunch(std::uint32_t generation) const {
  DS_RETURN_IF_ERROR(CheckNewWork());
  if (generation_ && generation <= *generation_) {
    return AlreadyExistsError("generation " + std::to_string(generation) +
                              " was launched before, or a later one was");
  }
  if (running() || ending()) {
    return FailedPreconditionError("generation " + std::to_string(*generation_) + " has not ended");
  }
  if (!refused()) return OkStatus();
  return FailedPreconditionError("processes of the previous launch are still running");
}

void DaemonDuty::OnLaunched(std::uint32_t generation, Time grace) {
  generation_ = generation;
  grace_ = grace;
  phase_ = Phase::kRunning;
}

DaemonDuty::Next DaemonDuty::Finish() {
  finishing_ = true;
  if (running() || ending()) return Next::kStopRanks;
  return refused() ? Next::kNothing : Next::kQuit;
}

DaemonDuty::Next DaemonDuty::OnAlone() {
  phase_ = Phase::kIdle;
  return finishing_ ? Next::kQuit : Next::kNothing;
}

DaemonDuty::Time DaemonDuty::grace(v1::StopCause cause) const {
  return cause == v1::STOP_LEASE_EXPIRED ? v1::LeaseGrace(grace_) : grace_;
}

}  // namespace ds::daemon
