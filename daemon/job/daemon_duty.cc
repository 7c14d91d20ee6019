#include "daemon/job/daemon_duty.h"

#include <string>

#include "proto/lease.h"

namespace ds::daemon {

Status DaemonDuty::CheckNewWork() const {
  return finishing_ ? UnavailableError("this daemon is ending") : OkStatus();
}

Status DaemonDuty::CheckLaunch(std::uint32_t generation) const {
  if (generation_ && generation <= *generation_) {
    return AlreadyExistsError("generation " + std::to_string(generation) +
                              " was launched before, or a later one was");
  }
  DS_RETURN_IF_ERROR(CheckNewWork());
  if (running() || ending()) {
    return FailedPreconditionError("generation " + std::to_string(*generation_) + " has not ended");
  }
  return OkStatus();
}

void DaemonDuty::OnLaunched(std::uint32_t generation, Time grace) {
  generation_ = generation;
  grace_ = grace;
  phase_ = Phase::kRunning;
}

DaemonDuty::Next DaemonDuty::Finish() {
  finishing_ = true;
  if (running() || ending()) return Next::kStopRanks;
  return Next::kQuit;
}

DaemonDuty::Next DaemonDuty::OnAlone() {
  phase_ = Phase::kIdle;
  return finishing_ ? Next::kQuit : Next::kNothing;
}

DaemonDuty::Time DaemonDuty::grace(v1::StopCause cause) const {
  return cause == v1::STOP_LEASE_EXPIRED ? v1::LeaseGrace(grace_) : grace_;
}

}  // namespace ds::daemon
