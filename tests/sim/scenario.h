#pragma once

// Scenario: a job, and what happens to it.

#include <cstdint>
#include <set>
#include <vector>

#include "tests/sim/event_clock.h"

namespace ds::sim {

enum class FaultKind {
  kKillDaemon,
  kPauseDaemon,  // for a while
  kPartition,    // both ways
  kDeafHost,     // what is sent to it does not come
  kMuteHost,     // what it sends does not come
  kSlowNetwork,  // what is sent takes up to a lease
  kKillRank,
  kFlood,       // what it reports comes late, behind much output
  kPauseDsrun,  // for a while
  kUserSignal,
  kFailEverywhere,  // a rank of each host fails, within a second
  kKillAgent,       // another one takes over, if ranks run
};

struct Fault {
  FaultKind kind{};
  int host = -1;  // its index in the plan; -1: of dsrun
  Time begin{};
  Time length{};
};

struct Scenario {
  int hosts = 2;
  int spares = 0;
  int max_restarts = 0;
  double lease_seconds = 10;
  double grace_seconds = 15;
  std::vector<Fault> faults;
  std::set<int> down;      // hosts, and spares after them, on which no daemon starts
  std::set<int> refusing;  // hosts, and spares, that refuse the job
};

// A story that a seed tells; most have faults.
Scenario DrawScenario(std::uint64_t seed);

}  // namespace ds::sim
