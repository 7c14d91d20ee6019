#include "cli/plan/world_plan.h"

#include <utility>

#include "cli/plan/core_list.h"

namespace ds::cli {

WorldPlan PlanWorld(const std::vector<HostSlots>& selected) {
  WorldPlan plan;
  for (const HostSlots& host : selected) {
    const int node_rank = static_cast<int>(plan.hosts.size());
    plan.hosts.push_back({.host = host.host,
                          .slots = host.slots,
                          .devices = host.devices,
                          .first_rank = plan.world_size()});
    for (std::size_t i = 0; i < host.slots.size(); ++i) {
      plan.ranks.push_back({.rank = plan.world_size(),
                            .node_rank = node_rank,
                            .local_rank = static_cast<int>(i),
                            .slot = host.slots[i]});
    }
  }
  return plan;
}

Status BindCores(const HostCores& available, int node_rank, WorldPlan* plan) {
  const JobHost& host = plan->hosts[node_rank];
  StatusOr<std::vector<std::vector<int>>> shares = DivideCores(available.cores, host.rank_count());
  if (!shares.ok()) return shares.status().WithContext("host '" + host.host + "'");
  for (int i = 0; i < host.rank_count(); ++i) {
    PlannedRank& rank = plan->ranks[host.first_rank + i];
    rank.cores = std::move((*shares)[i]);
    rank.memory = ChooseMemory(available.nodes, rank.cores);
  }
  return OkStatus();
}

}  // namespace ds::cli
