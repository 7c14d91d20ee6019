#pragma once

// The world of a job: every rank, where it runs and with what.
//
// Ranks are numbered host by host in pool order; the local rank is the index within the host. What
// is planned here does not depend on the machine that plans: cores of a host that nobody has asked
// yet are empty.
//
// Pure; safe from any thread.

#include <string>
#include <vector>

#include "cli/plan/memory_policy.h"
#include "cli/plan/resource_filter.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct PlannedHost {
  std::string host;  // as spelt in the hostfile
  std::vector<int> slots;
  std::vector<std::string> devices;  // of the slots; empty when the ranks use none
  int first_rank = 0;

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
  std::vector<PlannedHost> hosts;
  std::vector<PlannedRank> ranks;

  int world_size() const { return static_cast<int>(ranks.size()); }
  const PlannedHost& host_of(const PlannedRank& rank) const { return hosts[rank.node_rank]; }
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
