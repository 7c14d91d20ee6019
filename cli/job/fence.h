#pragma once

// Fence: when the ranks of hosts that were given up have ended for certain, so that others may
// start in their place.
//
// What is seen of a host proves nothing about its ranks: a stopped daemon is silent, a gateway
// refuses connections in its name, answers get lost on their way back. What proves something is
// the host's own word that its ranks have ended (such a host never comes here), and time: a daemon
// that nobody renews ends its ranks when its lease is over, and where it cannot, the kernel does
// (proto/lease.h). It counts its lease from an answer that has reached us, or an earlier one, so
// that no renewal that arrives late makes it longer than is reckoned here.
//
// Pure: times are given. Threads: one at a time.

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace ds::cli {

class Fence {
 public:
  using Time = std::chrono::nanoseconds;  // by BootTime(): a machine's sleep counts

  // `lease` is that of every daemon; `grace` what the job gives ranks that are stopped.
  Fence(Time lease, Time grace);

  // The host was given up; its lease is counted from `lease_from` at the latest.
  void Add(const std::string& host, Time lease_from);

  // From then on the ranks of all these hosts have ended; 0 = there were none.
  Time opens() const;
  // When this time has passed; 0 = they have.
  Time Remaining(Time now) const { return std::max(opens() - now, Time(0)); }
  // Says who is waited for and why; requires that somebody is.
  std::string Explain(Time now) const;

 private:
  struct GivenUp {
    std::string host;
    Time ended;  // from then on
  };

  const Time patience_;  // from a renewal to the end of the last rank
  std::vector<GivenUp> hosts_;
};

}  // namespace ds::cli
