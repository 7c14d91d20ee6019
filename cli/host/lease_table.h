#pragma once

// LeaseTable decides for LeaseKeeper whose lease is to be renewed when, and how each host of a job
// is (host_liveness.h).
//
// A lost host stays lost: its lease is not renewed any more, so that its ranks end.
//
// Pure: times are given. Threads: one at a time.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/host/connection_probe.h"
#include "cli/host/host_liveness.h"
#include "cli/host/own_pauses.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct HostChange {
  int host = 0;  // its number, as given to Add
  HostGrade grade = HostGrade::kAlive;
  HostGrade before = HostGrade::kAlive;
  std::chrono::nanoseconds silence{};     // until now; of a host that is alive again: until it was
  std::int64_t last_sign_unix_nanos = 0;  // by this machine's clock
  std::string evidence;                   // what became of its renewals
  ProbeResult probe;  // a look at its port; only with kLost, and of another machine
  bool is_of_this_machine = false;
};

class LeaseTable {
 public:
  using Time = std::chrono::nanoseconds;  // of a monotonic clock

  // `lease` is what the daemons were started with.
  explicit LeaseTable(Time lease);

  // No two daemons have the same number. One of this machine does not run out of a lease while this
  // process does not run: no such time is its silence.
  void Add(int number, Time now, bool is_of_this_machine = false);
  // Those who are to be renewed now, which counts as being done.
  std::vector<int> TakeDue(Time now);
  // Tells what became of it.
  void OnRenewed(int number, const Status& answer, Time now);
  // An event came at `when`.
  void OnEvent(int number, Time when) { hosts_.at(number).liveness.OnEvent(when); }
  // Returns what has changed since the last time, without a look at ports.
  std::vector<HostChange> TakeChanges(Time now, std::int64_t unix_nanos);
  // Those that are not lost.
  std::vector<int> present() const;

  Time lease() const { return lease_; }
  // There is to be a look at what is due and what has changed as often as that; each wait between
  // two of them is told, so that a time in which this process did not run is no host's silence.
  Time look_interval() const { return look_interval_; }
  void BeginWait(const OwnPauses::Clocks& now) { pauses_.BeginWait(now); }
  void EndWait(const OwnPauses::Clocks& now);
  // The last time, not long before `now` by BootTime(), in which this process did not run for so
  // much of a lease that hosts may have ended their ranks because of it.
  std::optional<OwnPause> FindOwnPause(Time now) const;

 private:
  struct Host {
    HostLiveness liveness;
    bool is_of_this_machine = false;
    HostGrade told = HostGrade::kAlive;
    Time next_renewal{};
    bool renewing = false;
    bool has_answered = false;
    Time last_silence{};  // when it was last found not alive
  };
  HostChange MakeChange(int number, HostGrade grade, Time now, std::int64_t unix_nanos);

  const Time lease_;
  const Time renewal_interval_;
  const Time look_interval_;
  std::map<int, Host> hosts_;
  OwnPauses pauses_;
};

}  // namespace ds::cli
