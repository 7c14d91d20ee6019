#include "cli/host/host_liveness.h"

#include <algorithm>

namespace ds::cli {

LivenessThresholds LivenessThresholds::OfLease(std::chrono::nanoseconds lease) {
  return {.late = lease / 3, .suspect = lease * 2 / 3, .lost = lease};
}

void HostLiveness::OnEvent(Time when) { last_sign_ = std::max(last_sign_, when); }

void HostLiveness::OnAnswer(Time now) {
  OnEvent(now);
  failed_renewals_ = 0;
  last_failure_.clear();
}

void HostLiveness::OnFailedRenewal(const std::string& why) {
  ++failed_renewals_;
  last_failure_ = why;
}

HostGrade HostLiveness::Grade(Time now) const {
  const Time silent = silence(now);
  if (silent >= thresholds_.lost) return HostGrade::kLost;
  if (silent >= thresholds_.suspect) return HostGrade::kSuspect;
  return silent >= thresholds_.late ? HostGrade::kLate : HostGrade::kAlive;
}

std::string HostLiveness::Evidence() const {
  if (failed_renewals_ == 0) return "no answer to a renewal of its lease";
  return std::to_string(failed_renewals_) +
         (failed_renewals_ == 1 ? " renewal of its lease failed: "
                                : " renewals of its lease failed, the last: ") +
         last_failure_;
}

}  // namespace ds::cli
