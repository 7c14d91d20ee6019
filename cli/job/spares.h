#pragma once

// Spares: hosts of a job that take part only when another is lost. Which one takes a lost host's
// place is decided by SparePool; SpareStarter makes it ready.
//
// A spare's index is its place in JobPlan::spares.

#include <optional>
#include <string>
#include <vector>

#include "cli/host/host_daemon.h"
#include "runtime/base/status.h"

namespace ds::cli {

// Pure. Threads: one at a time.
class SparePool {
 public:
  // `slot_counts` says by spare how many slots it has.
  explicit SparePool(std::vector<int> slot_counts);

  // The first unused spare with exactly so many slots, which counts as used from now on: ranks keep
  // their numbers, and a world its size. None: there is no such spare.
  std::optional<int> Take(int slot_count);
  // Tells whether lost hosts with so many slots each could all be replaced.
  bool Covers(const std::vector<int>& slot_counts) const;

 private:
  std::vector<int> unused_;  // slot counts by spare; 0 = used
};

struct StartedSpare {
  HostDaemon* daemon = nullptr;  // outlives the job
  std::string master_addr;       // where rank 0's host is reached by the others from now on
};

class SpareStarter {
 public:
  virtual ~SpareStarter() = default;
  // A daemon on the spare, which takes the place of host `node_rank` of the plan.
  virtual StatusOr<StartedSpare> StartSpare(int spare, int node_rank) = 0;
};

}  // namespace ds::cli
