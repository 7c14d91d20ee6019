#pragma once

// Spares are hosts of a job that are used only to replace another host: one that is lost, or one
// that cannot take part from the start. SparePool chooses the spare; ReplacementStarter starts its
// daemon, or a new one on the lost host itself.
//
// A spare is identified by its index in JobPlan::spares.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/host/host_daemon.h"
#include "cli/job/verdict/verdict.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct JobPlan;

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
  std::vector<int> used() const;
  void Restore(const std::vector<int>& used);

 private:
  std::vector<int> unused_;  // slot counts by spare; 0 = used
};

// Returns whether spares of the pool can take all these places. Pure.
bool CanReplace(const JobPlan& plan, const std::vector<int>& node_ranks, const SparePool& pool);

// A host that takes the place of another one.
struct Replacement {
  int number = 0;     // of its daemon; unique within the job
  int host = 0;       // index for JobPlan::host: of a spare, or of the lost host itself
  int node_rank = 0;  // the place
};

struct StartedReplacement {
  HostDaemon* daemon = nullptr;  // outlives the job
  std::string master_addr;       // new address of rank 0's host for the others
};

// Hosts of the world without a daemon, because their start failed.
struct AbsentHosts {
  std::map<int, Verdict> failures;  // by node rank
  std::vector<std::string> table;   // of the failures, for the user
};

class ReplacementStarter {
 public:
  virtual ~ReplacementStarter() = default;
  // Starts a daemon. Blocks; one call at a time.
  virtual StatusOr<StartedReplacement> StartReplacement(const Replacement& replacement) = 0;
  // Returns the hosts that are to be replaced before the first generation.
  virtual AbsentHosts absent_hosts() const { return {}; }
};

}  // namespace ds::cli
