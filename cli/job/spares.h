#pragma once

// Spares are hosts of a job that are used only to replace a lost host. SparePool chooses the spare;
// SpareStarter starts its daemon.
//
// A spare is identified by its index in JobPlan::spares.

#include <optional>
#include <string>
#include <vector>

#include "cli/host/host_daemon.h"
#include "runtime/base/status.h"

namespace ds::cli {

// Pure. Not thread-safe.
class SparePool {
 public:
  // `slot_counts` are the numbers of slots by spare.
  explicit SparePool(std::vector<int> slot_counts);

  // Returns the first unused spare with exactly `slot_count` slots and marks it as used; ranks keep
  // their numbers, and the world its size. nullopt: there is none.
  std::optional<int> Take(int slot_count);
  // Returns whether lost hosts with these numbers of slots could all be replaced.
  bool Covers(const std::vector<int>& slot_counts) const;

 private:
  std::vector<int> unused_;  // slot counts by spare; 0 = used
};

struct StartedSpare {
  HostDaemon* daemon = nullptr;  // outlives the job
  std::string master_addr;       // new address of rank 0's host for the others
};

class SpareStarter {
 public:
  virtual ~SpareStarter() = default;
  // Starts a daemon on the spare, which replaces host `node_rank` of the plan.
  virtual StatusOr<StartedSpare> StartSpare(int spare, int node_rank) = 0;
};

}  // namespace ds::cli
