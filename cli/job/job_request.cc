#include "cli/job/job_request.h"

#include <algorithm>
#include <string_view>

namespace ds::cli {
namespace {

void AddVariable(const std::pair<std::string, std::string>& variable,
                 google::protobuf::RepeatedPtrField<v1::EnvironmentVariable>* environment) {
  v1::EnvironmentVariable* added = environment->Add();
  added->set_name(variable.first);
  added->set_value(variable.second);
}

bool IsRemote(const JobRequest& job, int node_rank) {
  return !job.remote.empty() && job.remote[node_rank];
}

// Of another host only what it is sent is known.
std::string Exported(const JobRequest& job, int node_rank, std::string_view name) {
  std::string value;
  for (const auto& [exported, exported_value] : job.exports[node_rank]) {
    if (exported == name) value = exported_value;
  }
  return value;
}

void AddProcessSettings(const JobRequest& job, v1::LaunchRequest* request) {
  if (job.umask.has_value()) request->set_umask(static_cast<std::uint32_t>(*job.umask));
  for (const ProcessLimit& limit : job.limits) {
    v1::RankLimit* added = request->add_limits();
    added->set_name(limit.name);
    added->set_soft(limit.soft);
    added->set_hard(limit.hard);
  }
}

v1::RankSpec MakeRankSpec(const JobRequest& job, const RankProgram& program,
                          const PlannedRank& rank, const JobEnvironment& environment) {
  v1::RankSpec spec;
  spec.set_rank(rank.rank);
  spec.set_local_rank(rank.local_rank);
  for (const std::string& word : program.argv) {
    if (job.local_rank_position > 0 && spec.argv_size() == job.local_rank_position) {
      spec.add_argv("--local_rank=" + std::to_string(rank.local_rank));
    }
    spec.add_argv(word);
  }
  if (job.local_rank_position > 0 && spec.argv_size() == job.local_rank_position) {
    spec.add_argv("--local_rank=" + std::to_string(rank.local_rank));
  }
  for (const auto& variable : RankEnvironment(job.plan, rank, environment)) {
    AddVariable(variable, spec.mutable_environment());
  }
  for (const int core : rank.cores) spec.add_cores(core);
  if (rank.memory.kind != MemoryPolicy::Kind::kDefault) {
    spec.mutable_memory_policy()->set_kind(rank.memory.kind == MemoryPolicy::Kind::kBind
                                               ? v1::MemoryPolicy::BIND
                                               : v1::MemoryPolicy::PREFERRED);
    for (const int node : rank.memory.nodes) spec.mutable_memory_policy()->add_nodes(node);
  }
  return spec;
}

HostCores CoresOf(const v1::PrepareResponse& host) {
  HostCores available;
  available.cores.assign(host.usable_cores().begin(), host.usable_cores().end());
  for (const v1::NumaNode& node : host.numa_nodes()) {
    available.nodes.push_back({.id = static_cast<int>(node.id()),
                               .cpus = {node.cpus().begin(), node.cpus().end()},
                               .memory_bytes = node.memory_bytes()});
  }
  return available;
}

}  // namespace

Status BindHosts(const std::vector<v1::PrepareResponse>& hosts, JobRequest* job) {
  if (!job->bind_cores) return OkStatus();
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    HostCores available = CoresOf(hosts[i]);
    if (!job->core_list.empty()) available.cores = job->core_list;
    DS_RETURN_IF_ERROR(BindCores(available, static_cast<int>(i), &job->plan));
  }
  return OkStatus();
}

void PutInPlace(const SpareHost& spare, int node_rank, JobRequest* job) {
  PlannedHost& host = job->plan.hosts[node_rank];
  host.host = spare.slots.host;
  host.slots = spare.slots.slots;
  host.devices = spare.slots.devices;
  for (int i = 0; i < host.rank_count(); ++i) {
    PlannedRank& rank = job->plan.ranks[host.first_rank + i];
    rank.slot = host.slots[i];
    rank.cores.clear();
    rank.memory = {};
  }
  job->working_directories[node_rank] = spare.working_directory;
  job->exports[node_rank] = spare.exports;
  job->remote.resize(job->plan.hosts.size());
  job->remote[node_rank] = spare.remote;
}

v1::PrepareRequest MakePrepareRequest(const JobRequest& job, int node_rank) {
  v1::PrepareRequest request;
  request.set_job_id(job.job_id);
  request.set_rank_count(job.plan.hosts[node_rank].rank_count());
  request.set_program(job.executable);
  request.set_script(job.script);
  request.set_working_directory(job.working_directories[node_rank]);
  request.set_lease_master_port(node_rank == 0);
  request.set_master_port(job.master_port);
  request.set_device(job.device);
  // Without it the host's daemon takes its own PATH, which is what the ranks inherit.
  request.set_search_path(Exported(job, node_rank, "PATH"));
  for (const std::string& device : job.plan.hosts[node_rank].devices) request.add_devices(device);
  request.set_describe_cores(job.bind_cores);
  return request;
}

v1::LaunchRequest MakeLaunchRequest(const JobRequest& job, const RankProgram& program,
                                    const LaunchDetails& details) {
  const PlannedHost& host = job.plan.hosts[details.node_rank];
  v1::LaunchRequest request;
  request.set_job_id(job.job_id);
  request.set_generation(details.generation);
  request.set_working_directory(job.working_directories[details.node_rank]);
  request.set_inherit_environment(true);
  request.set_grace_seconds(job.grace_seconds);
  request.set_forward_input(details.forward_input);
  for (const auto& variable : job.exports[details.node_rank]) {
    AddVariable(variable, request.mutable_environment());
  }
  AddProcessSettings(job, &request);
  const JobEnvironment environment{
      .job_id = job.job_id,
      .generation = details.generation,
      .master_addr = job.master_addr,
      .master_port = details.master_port,
      .one_device_per_rank = job.one_device_per_rank,
      .user_set_threads = IsRemote(job, details.node_rank)
                              ? !Exported(job, details.node_rank, "OMP_NUM_THREADS").empty()
                              : job.user_set_threads,
      .threads_per_rank = std::max(1, details.core_count / host.rank_count())};
  for (int i = 0; i < host.rank_count(); ++i) {
    const PlannedRank& rank = job.plan.ranks[host.first_rank + i];
    *request.add_ranks() = MakeRankSpec(job, program, rank, environment);
  }
  for (const auto& [name, content] : program.files) {
    v1::JobFile* file = request.add_files();
    file->set_name(name);
    file->set_content(content);
  }
  return request;
}

}  // namespace ds::cli
