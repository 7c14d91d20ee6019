#pragma once

// DaemonDuty decides for a daemon which generation it may start, and in which order it ends.
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
  using Time = std::chrono::nanoseconds;

  // Returns kUnavailable if the daemon is ending and must not start anything.
  Status CheckNewWork() const;
  // Also checks that a generation may be launched now: the last one has ended and has a lower
  // number.
  Status CheckLaunch(std::uint32_t generation) const;
  void OnLaunched(std::uint32_t generation, Time grace);
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

 private:
  enum class Phase { kIdle, kRunning, kEnding };

  Phase phase_ = Phase::kIdle;
  bool finishing_ = false;
  std::optional<std::uint32_t> generation_;  // the last one launched
  Time grace_{0};                            // of the last generation's ranks
};

}  // namespace ds::daemon
