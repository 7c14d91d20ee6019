#pragma once

// StoppedRanks detects a rank that a signal has stopped (SIGSTOP) while other ranks of its job run
// and therefore wait for it. A rank that continues in time does not count. Neither does a rank of a
// job with all ranks stopped, because schedulers suspend jobs in this way.
//
// Times are from the clock of the reporting host and are only compared with each other.
//
// Pure: no I/O, no clock. Not thread-safe.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "proto/dsrun.pb.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

struct StalledRank {
  std::string host;
  int rank = 0;
  int pid = 0;
  std::chrono::nanoseconds since{};  // observed duration of the stop
};

class StoppedRanks {
 public:
  // A rank may be stopped for less than `timeout`.
  explicit StoppedRanks(std::chrono::nanoseconds timeout) : timeout_(timeout) {}

  // Returns the rank that, according to the event, has been stopped for too long.
  std::optional<StalledRank> OnEvent(const std::string& host, const v1::Event& event);

 private:
  struct Rank {
    int pid = 0;
    bool stopped = false;
    // Start of the stop while other ranks ran, by the monotonic clock of the host.
    std::optional<std::int64_t> stopped_at;
  };

  bool IsAnyRunning() const;

  const std::chrono::nanoseconds timeout_;
  std::map<int, Rank> ranks_;  // ranks that have not ended
};

}  // namespace ds::cli
