#pragma once

// LeaseTable decides for LeaseKeeper which lease to renew when, and grades each host of a job
// (host_liveness.h).
//
// A lost host stays lost: its lease is no longer renewed, so that its ranks end.
//
// Pure: the caller passes the time. Not thread-safe.

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
  int host = 0;  // the number passed to Add
  HostGrade grade = HostGrade::kAlive;
  HostGrade before = HostGrade::kAlive;
  std::chrono::nanoseconds
      silence{};  // until now; for a host that is alive again, until its sign of life
  std::int64_t last_sign_unix_nanos = 0;  // by this machine's clock
  std::string evidence;                   // the results of its renewals
  // The result of a probe of its port. A lost host of another machine is reported at once without
  // it, and a second time with it, from kLost to kLost.
  std::optional<ProbeResult> probe;
  bool is_of_this_machine = false;

  bool awaits_probe() const {
    return grade == HostGrade::kLost && !probe.has_value() && !is_of_this_machine;
  }
};

class LeaseTable {
 public:
  using Time = std::chrono::nanoseconds;  // of a monotonic clock

  // `lease` is the lease of the daemons.
  explicit LeaseTable(Time lease);

  // `number` must be unique. A daemon of this machine does not lose its lease while this process
  // does not run, so such a time is not its silence.
  void Add(int number, Time now, bool is_of_this_machine = false);
  // Returns the hosts to renew now, and marks them as being renewed.
  std::vector<int> TakeDue(Time now);
  // Records the result of a renewal.
  void OnRenewed(int number, const Status& answer, Time now);
  // Records an event that arrived at `when`.
  void OnEvent(int number, Time when) { hosts_.at(number).liveness.OnEvent(when); }
  // Returns the changes since the last call, without probes of ports.
  std::vector<HostChange> TakeChanges(Time now, std::int64_t unix_nanos);
  // Returns the hosts that are not lost.
  std::vector<int> present() const;

  Time lease() const { return lease_; }
  // The caller calls TakeDue and TakeChanges at this interval. It reports each wait in between with
  // BeginWait and EndWait, so that a time in which this process did not run is not a host's
  // silence.
  Time look_interval() const { return look_interval_; }
  void BeginWait(const OwnPauses::Clocks& now) { pauses_.BeginWait(now); }
  void EndWait(const OwnPauses::Clocks& now);
  // Returns the last time, shortly before `now` by BootTime(), in which this process did not run
  // for so large a part of a lease that hosts may have ended their ranks because of it. For a host,
  // given by its number, such a time counts until the host answers when it can no longer end
  // because of it: the loss of a host that nobody needs at the moment is noticed much later. An
  // unknown number is allowed.
  std::optional<OwnPause> FindOwnPause(Time now, std::optional<int> number = std::nullopt) const;

 private:
  struct Host {
    HostLiveness liveness;
    bool is_of_this_machine = false;
    HostGrade told = HostGrade::kAlive;
    Time next_renewal{};
    bool renewing = false;
    bool has_answered = false;
    Time last_silence{};  // when the host was last not alive
    Time renewal_sent{};
    std::optional<OwnPause> pause = {};  // the longest that may have cost its lease
    Time outlives_pause_at{};
  };
  bool CostsLeases(const OwnPause& pause) const;
  void RememberPause(const OwnPause& pause, Time now);
  HostChange MakeChange(int number, HostGrade grade, Time now, std::int64_t unix_nanos);

  const Time lease_;
  const Time renewal_interval_;
  const Time look_interval_;
  std::map<int, Host> hosts_;
  OwnPauses pauses_;
};

}  // namespace ds::cli
