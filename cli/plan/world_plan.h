#pragma once

// The world of a job: every rank, where it runs and with what.
//
// Ranks are numbered host by host in pool order; the local rank is the index within the host. What
// is planned here does not depend on the machine that plans: cores of a host that nobody has asked
// yet are empty.
//
// Pure; safe from any thread.

#include <string>
#include <utility>
#include <vector>

#include "cli/plan/hostfile.h"
#include "cli/plan/memory_policy.h"
#include "cli/plan/resource_filter.h"
#include "runtime/base/status.h"

namespace ds::cli {

using Environment = std::vector<std::pair<std::string, std::string>>;

// A host that takes part from the start, or a spare, and all that is known of it before anybody has
// contacted it.
struct JobHost {
  std::string host;  // as spelt in the hostfile
  std::vector<int> slots;
  std::vector<std::string> devices;  // of the slots; empty when the ranks use none
  int first_rank = 0;                // a spare's is that of the host whose place it takes
  HostEntry entry;                   // made up without a hostfile
  // It is reached over SSH, and its ranks do not inherit the environment of dsrun.
  bool remote = false;
  std::string working_directory;
  Environment exports;        // over its own environment
  bool sets_threads = false;  // its ranks find OMP_NUM_THREADS in one of the two

  int rank_count() const { return static_cast<int>(slots.size()); }
};

struct PlannedRank {
  int rank = 0;
  int node_rank = 0;  // index into WorldPlan::hosts
  int local_rank = 0;
  int slot = 0;
  std::vector<int> cores;  // empty = not bound
  MemoryPolicy memory;
};

struct WorldPlan {
  std::vector<JobHost> hosts;
  std::vector<PlannedRank> ranks;

  int world_size() const { return static_cast<int>(ranks.size()); }
  const JobHost& host_of(const PlannedRank& rank) const { return hosts[rank.node_rank]; }
};

// Requires: every host has a slot.
WorldPlan PlanWorld(const std::vector<HostSlots>& selected);

// The cores of a host that ranks can be bound to.
struct HostCores {
  std::vector<int> cores;       // to be divided; ascending
  std::vector<NumaNode> nodes;  // none when not known
};

// Divides the cores of host `node_rank` among its ranks, and chooses the memory that belongs to
// each share.
Status BindCores(const HostCores& host, int node_rank, WorldPlan* plan);

}  // namespace ds::cli
