#pragma once

// LeaseTerm tracks the time from which a daemon counts its lease, as far as the controller knows.
//
// The response to a renewal contains the daemon's time. The next renewal names that time, and the
// daemon counts its lease from it. The time of the last response received here is therefore the
// latest possible start of the lease.
//
// Pure: the caller passes the time. Not thread-safe.

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace ds::cli {

class LeaseTerm {
 public:
  using Time = std::chrono::nanoseconds;  // by BootTime()

  // `now` is the latest time at which the daemon starts.
  explicit LeaseTerm(Time now) : from_(now) {}

  // Returns the time for the next renewal to name, by the daemon's clock; 0 = no response yet.
  std::uint64_t answered() const { return answered_; }
  // Returns the latest time from which the daemon may count its lease.
  Time from() const { return from_; }

  // Records a response with the daemon's time.
  void OnAnswer(std::uint64_t daemon_nanos, Time now) {
    if (given_up_) return;  // no renewal will name it
    answered_ = std::max(answered_, daemon_nanos);
    from_ = now;
  }
  // Ends the renewals.
  void GiveUp() { given_up_ = true; }

 private:
  std::uint64_t answered_ = 0;
  Time from_;
  bool given_up_ = false;
};

}  // namespace ds::cli
