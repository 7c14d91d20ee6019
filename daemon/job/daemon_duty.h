#pragma once

// DaemonDuty decides for a daemon: the generation it may start, how long it lives without renewals
// from its controller, and in which order it ends.
//
// A lease starts at the time of the answer that a renewal names. So it never lasts longer than the
// controller expects (cli/job/fence.h).
//
// Pure: times are arguments. Not thread-safe.

#include <chrono>
#include <cstdint>
#include <optional>

#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

class DaemonDuty {
 public:
  using Time = std::chrono::nanoseconds;  // by BootTime(), which includes suspension of the machine

  // `lease` = 0: the daemon has no lease.
  DaemonDuty(Time lease, Time now) : lease_(lease), lease_from_(now) {}

  // Call when a renewal has arrived. `answered` is the time of the answer that it names, 0 for
  // none.
  Status OnRenewal(Time answered, Time now);
  // The lease has expired at this time.
  Time end_of_lease() const { return lease_from_ + lease_; }
  bool has_lease() const { return lease_ > Time(0); }
  // The kernel kills the daemon at this time, after the ranks' bounded grace.
  Time death() const;

  // Returns kUnavailable if the daemon is ending and must not start anything.
  Status CheckNewWork() const;
  // Also checks that a generation may be launched now: the last one has ended and has a lower
  // number.
  Status CheckLaunch(std::uint32_t generation) const;
  void OnLaunched(std::uint32_t generation, Time grace);
  // A launch was refused, and its orphans have not ended yet.
  void OnRefused() { phase_ = Phase::kRefused; }
  // The ranks have ended; their orphans have not.
  void OnRanksEnded() { phase_ = Phase::kEnding; }

  enum class Next { kNothing, kStopRanks, kQuit };
  // Begins the end of the daemon. For kStopRanks, stop the ranks with grace(cause).
  Next Finish();
  // Call when no rank or orphan runs any more.
  Next OnAlone();

  Time grace(v1::StopCause cause) const;
  bool finishing() const { return finishing_; }
  bool running() const { return phase_ == Phase::kRunning; }
  bool ending() const { return phase_ == Phase::kEnding; }
  bool refused() const { return phase_ == Phase::kRefused; }

 private:
  enum class Phase { kIdle, kRunning, kEnding, kRefused };

  const Time lease_;
  Time lease_from_;
  Phase phase_ = Phase::kIdle;
  bool finishing_ = false;
  std::optional<std::uint32_t> generation_;  // the last one launched
  Time grace_{0};                            // of the last generation's ranks
};

}  // namespace ds::daemon
