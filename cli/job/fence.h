#pragma once

// Fence computes the time at which the ranks of given-up hosts have certainly ended, so that
// replacements may start.
//
// Observations of a host do not prove anything about its ranks: a stopped daemon is silent, a
// gateway refuses connections on its behalf, responses get lost. Two things are proof: the daemon's
// report that its ranks have ended (Add is not called for such a host), and time. Without renewals
// a daemon ends its ranks when its lease expires, and if it cannot, the kernel does
// (proto/lease.h). It counts its lease from a response that has reached us, or an earlier one, so
// that a late renewal never makes the lease longer than assumed here.
//
// Pure: the caller passes the time. Not thread-safe.

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace ds::cli {

class Fence {
 public:
  using Time = std::chrono::nanoseconds;  // by BootTime(), which includes suspension

  // `lease` is the lease of every daemon, `grace` the job's grace period for ranks.
  Fence(Time lease, Time grace);

  // Adds a given-up host, with the latest time from which it may count its lease.
  void Add(const std::string& host, Time lease_from);

  // Returns the time from which the ranks of all added hosts have ended; 0 = no hosts.
  Time opens() const;
  // Returns the remaining time; 0 = they have ended.
  Time Remaining(Time now) const { return std::max(opens() - now, Time(0)); }
  // Names the hosts and the reason for the wait. Requires: Remaining is not 0.
  std::string Explain(Time now) const;

 private:
  struct GivenUp {
    std::string host;
    Time ended;  // from this time on
  };

  const Time timeout_;  // from a renewal to the end of the last rank
  std::vector<GivenUp> hosts_;
};

}  // namespace ds::cli
