#pragma once

// StoppedRanks: finds the rank that a signal has stopped (SIGSTOP) while others of its job go on,
// and so wait for it. One that goes on again in time is none; nor is one of a job whose ranks are
// all stopped, as a scheduler does to what it suspends.
//
// Times are those of the host that tells, compared with each other only.
//
// Pure: no I/O, no clock. Threads: one at a time.

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
  std::chrono::nanoseconds since{};  // it has been seen stopped for so long
};

class StoppedRanks {
 public:
  // A rank may be stopped for less than `patience`.
  explicit StoppedRanks(std::chrono::nanoseconds patience) : patience_(patience) {}

  // Returns the rank that the event shows to have been stopped for too long.
  std::optional<StalledRank> OnEvent(const std::string& host, const v1::Event& event);

 private:
  struct Rank {
    int pid = 0;
    bool stopped = false;
    // While others ran, by the monotonic clock of its host: since when it has been seen so.
    std::optional<std::int64_t> stopped_at;
  };

  bool IsAnyRunning() const;

  const std::chrono::nanoseconds patience_;
  std::map<int, Rank> ranks_;  // those that have not ended
};

}  // namespace ds::cli
