#pragma once

// HostLiveness grades how likely it is that a host of the job is still up.
//
// Every message of the host's daemon is a sign of life: the response to a renewal, or an event. A
// busy host with slow responses is therefore alive as long as its heartbeats and steps arrive.
// Without a sign of life it becomes late, suspect, and, after the duration of the lease, lost.
// Whether its ranks have ended is a separate question (cli/job/fence.h).
//
// A time in which this process itself did not run does not count as silence of the host, unless it
// was longer than a lease.
//
// Pure: the caller passes the time. Not thread-safe.

#include <chrono>
#include <optional>
#include <string>

namespace ds::cli {

enum class HostGrade { kAlive, kLate, kSuspect, kLost };

// The durations of silence after which a host has each grade.
struct LivenessThresholds {
  std::chrono::nanoseconds late;
  std::chrono::nanoseconds suspect;
  std::chrono::nanoseconds lost;

  // Renewals are sent at least six times per lease. A host is late after a third of it without a
  // sign of life, and suspect after two thirds.
  static LivenessThresholds OfLease(std::chrono::nanoseconds lease);
};

class HostLiveness {
 public:
  using Time = std::chrono::nanoseconds;  // of a monotonic clock

  HostLiveness(const LivenessThresholds& thresholds, Time now)
      : thresholds_(thresholds), last_sign_(now) {}

  // Records the response to a renewal.
  void OnAnswer(Time now);
  // Records an event that arrived at `when`.
  void OnEvent(Time when);
  // Records that this process did not run for `length`, until now, if that is shorter than a lease.
  void OnOwnPause(Time length) { last_sign_ += length; }
  // Records a failed renewal with its error.
  void OnFailedRenewal(const std::string& why);

  HostGrade Grade(Time now) const;
  Time silence(Time now) const { return now - last_sign_; }
  // Describes the failed renewals: "3 renewals failed, the last: ...".
  std::string Evidence() const;

 private:
  const LivenessThresholds thresholds_;
  Time last_sign_;
  int failed_renewals_ = 0;  // since the last response
  std::string last_failure_;
};

}  // namespace ds::cli
