#include "cli/launch/rank_environment.h"

#include <fmt/format.h>

#include <algorithm>

namespace ds::cli {
namespace {

std::string Join(const std::vector<std::string>& words) {
  std::string joined;
  for (const std::string& word : words) joined += (joined.empty() ? "" : ",") + word;
  return joined;
}

void AddIdentity(const WorldPlan& plan, const PlannedRank& rank, Environment* environment) {
  const std::string local_size = std::to_string(plan.host_of(rank).rank_count());
  const std::string node_rank = std::to_string(rank.node_rank);
  environment->insert(environment->end(),
                      {{"RANK", std::to_string(rank.rank)},
                       {"LOCAL_RANK", std::to_string(rank.local_rank)},
                       {"WORLD_SIZE", std::to_string(plan.world_size())},
                       {"LOCAL_WORLD_SIZE", local_size},
                       {"LOCAL_SIZE", local_size},
                       {"GROUP_RANK", node_rank},
                       {"NODE_RANK", node_rank},
                       {"CROSS_RANK", node_rank},
                       {"CROSS_SIZE", std::to_string(plan.hosts.size())},
                       {"GROUP_WORLD_SIZE", std::to_string(plan.hosts.size())}});
}

// Adds torchrun's variables, so that torch.distributed.is_torchelastic_launched() returns true. All
// ranks have one role. Rank 0 serves the store, not an agent. With another setting ranks would wait
// for a server that nothing starts.
void AddTorchElastic(const WorldPlan& plan, const PlannedRank& rank, const JobEnvironment& job,
                     Environment* environment) {
  const std::string& run_id = job.run_id.empty() ? job.job_id : job.run_id;
  environment->insert(environment->end(),
                      {{"ROLE_NAME", job.role},
                       {"ROLE_RANK", std::to_string(rank.rank)},
                       {"ROLE_WORLD_SIZE", std::to_string(plan.world_size())},
                       {"TORCHELASTIC_RESTART_COUNT", std::to_string(job.generation)},
                       {"TORCHELASTIC_MAX_RESTARTS", std::to_string(job.max_restarts)},
                       {"TORCHELASTIC_USE_AGENT_STORE", "False"}});
  if (!run_id.empty()) environment->emplace_back("TORCHELASTIC_RUN_ID", run_id);
}

}  // namespace

JobEnvironment MakeJobEnvironment(const LaunchFlags& flags) {
  return {.max_restarts = flags.max_restarts,
          .run_id = flags.run_id,
          .role = flags.role,
          .interface = flags.interface,
          .lease_seconds = flags.lease_seconds,
          .collective_timeout = flags.collective_timeout,
          .one_device_per_rank = flags.one_device_per_rank};
}

Environment MakeRankEnvironment(const WorldPlan& plan, const PlannedRank& rank,
                                const JobEnvironment& job) {
  Environment environment;
  AddIdentity(plan, rank, &environment);
  environment.emplace_back("MASTER_ADDR", job.master_addr);
  if (job.master_port > 0) environment.emplace_back("MASTER_PORT", std::to_string(job.master_port));
  if (!job.interface.empty()) environment.emplace_back("DSRUN_INTERFACE", job.interface);
  if (plan.hosts.size() > 1 && job.lease_seconds > 0) {
    environment.emplace_back("DSRUN_LEASE_SECONDS", fmt::format("{}", job.lease_seconds));
  }
  if (job.collective_timeout > 0) {
    environment.emplace_back("DSRUN_COLLECTIVE_TIMEOUT", fmt::format("{}", job.collective_timeout));
  }
  const std::vector<std::string>& devices = plan.host_of(rank).devices;
  if (!devices.empty()) {
    environment.emplace_back("CUDA_VISIBLE_DEVICES",
                             job.one_device_per_rank ? devices[rank.local_rank] : Join(devices));
  }
  const int threads =
      rank.cores.empty() ? job.threads_per_rank : static_cast<int>(rank.cores.size());
  if (threads > 0 && !job.user_set_threads) {
    environment.emplace_back("OMP_NUM_THREADS", std::to_string(threads));
  }
  AddTorchElastic(plan, rank, job, &environment);
  if (!job.job_id.empty()) environment.emplace_back("DSRUN_JOB_ID", job.job_id);
  environment.emplace_back("DSRUN_GENERATION", std::to_string(job.generation));
  return environment;
}

namespace {

std::vector<std::string> ListOwnVariables() {
  const WorldPlan one_rank = PlanWorld({{.host = "host", .slots = {0}}});
  const JobEnvironment known{.job_id = "job", .master_addr = "address", .master_port = 1};
  const Environment own = MakeRankEnvironment(one_rank, one_rank.ranks.front(), known);
  std::vector<std::string> names;
  for (const auto& [name, value] : own) names.push_back(name);
  return names;
}

}  // namespace

bool IsOwnVariable(std::string_view name) {
  static const std::vector<std::string> names = ListOwnVariables();
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string ChooseMasterAddress(const WorldPlan& plan) {
  if (plan.hosts.size() == 1) return "127.0.0.1";
  const std::string& name = plan.hosts.front().host;
  return name.substr(name.find('@') + 1);
}

}  // namespace ds::cli
