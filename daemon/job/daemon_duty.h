#pragma once

// DaemonDuty: what a daemon owes its job: which generation it may start, how long it lives without
// hearing from its controller, and in which order it ends.
//
// A lease is counted from an answer that a renewal names, so that it never outlasts what the
// controller reckons with (cli/job/fence.h).
//
// Pure: times are given. Threads: one at a time.

#include <chrono>
#include <cstdint>
#include <optional>

#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::daemon {

namespace v1 = ::dsrun::v1;

class DaemonDuty {
 public:
  using Time = std::chrono::nanoseconds;  // by BootTime(): a machine's sleep counts

  // `lease` 0: the daemon has none.
  DaemonDuty(Time lease, Time now) : lease_(lease), lease_from_(now) {}

  // A renewal has come, which names the time of an answer, 0 for none.
  Status OnRenewal(Time answered, Time now);
  // Nothing has been heard for so long when this has come.
  Time end_of_lease() const { return lease_from_ + lease_; }
  bool has_lease() const { return lease_ > Time(0); }
  // The kernel is to end the daemon then, whose ranks have the job's grace.
  Time death() const;

  // kUnavailable when the daemon is ending, and begins nothing.
  Status CheckNewWork() const;
  // And whether a generation may be launched now: the last has ended, and was an earlier one.
  Status CheckLaunch(std::uint32_t generation) const;
  void OnLaunched(std::uint32_t generation, Time grace);
  // A launch was refused, and what it has left behind has not ended.
  void OnRefused() { phase_ = Phase::kRefused; }
  // The ranks have ended, what they have left behind has not.
  void OnRanksEnded() { phase_ = Phase::kEnding; }

  enum class Next { kNothing, kStopRanks, kQuit };
  // The daemon is to end. With kStopRanks they have grace(cause).
  Next Finish();
  // Nothing runs any more.
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
  std::optional<std::uint32_t> generation_;  // the last that was launched
  Time grace_{0};                            // of its ranks
};

}  // namespace ds::daemon
