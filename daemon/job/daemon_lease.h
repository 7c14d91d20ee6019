#pragma once

// DaemonLease decides how long a daemon lives without renewals from its controller.
//
// A lease starts at the time of the answer that a renewal names. So it never lasts longer than the
// controller expects (cli/job/fence.h).
//
// Pure: times are arguments. Not thread-safe.

#include <chrono>

#include "runtime/base/status.h"

namespace ds::daemon {

class DaemonLease {
 public:
  using Time = std::chrono::nanoseconds;  // by BootTime(), which includes suspension of the machine

  // `length` = 0: the daemon has no lease.
  DaemonLease(Time length, Time now) : length_(length), from_(now) {}

  // Call when a renewal has arrived. `answered` is the time of the answer that it names, 0 for
  // none.
  Status OnRenewal(Time answered, Time now);
  // Sets the grace of the ranks, from their launch on.
  void SetGrace(Time grace) { grace_ = grace; }

  bool exists() const { return length_ > Time(0); }
  // The lease has expired at this time.
  Time end() const { return from_ + length_; }
  // The kernel kills the daemon at this time, after the ranks' bounded grace.
  Time death() const;

 private:
  const Time length_;
  Time from_;
  Time grace_{0};
};

}  // namespace ds::daemon
