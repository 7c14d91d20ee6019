#pragma once

// HostLiveness: how sure we may be that a host of the job is still there.
//
// A sign of life is anything that its daemon itself has sent: the answer to a renewal, an event. So
// a host that is merely busy, whose answers are slow but whose heartbeats and steps come, is alive.
// From the last sign on it becomes late, suspect, and lost when the lease has passed. When its
// ranks have ended is another question (cli/job/fence.h).
//
// Time in which this process did not run itself, and so could not hear anybody, is not silence of
// the host, unless it was longer than a lease.
//
// Pure: times are given. Threads: one at a time.

#include <chrono>
#include <optional>
#include <string>

namespace ds::cli {

enum class HostGrade { kAlive, kLate, kSuspect, kLost };

// Silence from which on a host has the grade.
struct LivenessThresholds {
  std::chrono::nanoseconds late;
  std::chrono::nanoseconds suspect;
  std::chrono::nanoseconds lost;

  // Renewals go out six times in a lease or more often; a third of it without an answer makes a
  // host late, two thirds suspect.
  static LivenessThresholds OfLease(std::chrono::nanoseconds lease);
};

class HostLiveness {
 public:
  using Time = std::chrono::nanoseconds;  // of a monotonic clock

  HostLiveness(const LivenessThresholds& thresholds, Time now)
      : thresholds_(thresholds), last_sign_(now) {}

  // A renewal was answered.
  void OnAnswer(Time now);
  // An event came at `when`.
  void OnEvent(Time when);
  // This process did not run for so long, until now, and a lease lasts longer.
  void OnOwnPause(Time length) { last_sign_ += length; }
  // A renewal has failed; `why` is what it ended with.
  void OnFailedRenewal(const std::string& why);

  HostGrade Grade(Time now) const;
  Time silence(Time now) const { return now - last_sign_; }
  // Says what is known about the silence: "3 renewals failed, the last: ...".
  std::string Evidence() const;

 private:
  const LivenessThresholds thresholds_;
  Time last_sign_;
  int failed_renewals_ = 0;  // since the last answer
  std::string last_failure_;
};

}  // namespace ds::cli
