#include "cli/job/wire_requests.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cli/flags/process_settings.h"
#include "cli/launch/core_list.h"
#include "cli/launch/environment.h"
#include "cli/launch/memory_policy.h"

namespace ds::cli {
namespace {

void AddVariable(const std::pair<std::string, std::string>& variable,
                 google::protobuf::RepeatedPtrField<v1::EnvironmentVariable>* environment) {
  v1::EnvironmentVariable* added = environment->Add();
  added->set_name(variable.first);
  added->set_value(variable.second);
}

v1::PrepareRequest::Device ConvertDevice(Device device) {
  switch (device) {
    case Device::kAuto:
      return v1::PrepareRequest::DEVICE_AUTO;
    case Device::kCpu:
      return v1::PrepareRequest::DEVICE_CPU;
    case Device::kCuda:
      return v1::PrepareRequest::DEVICE_CUDA;
  }
  return v1::PrepareRequest::DEVICE_AUTO;
}

// Requires: checked by CheckLaunchFlags.
void AddProcessSettings(const LaunchFlags& flags, v1::LaunchRequest* request) {
  if (flags.umask.has_value()) request->set_umask(static_cast<std::uint32_t>(*flags.umask));
  for (const std::string& word : flags.ulimits) {
    const ProcessLimit limit = *ParseLimit(word);
    v1::RankLimit* added = request->add_limits();
    added->set_name(limit.name);
    added->set_soft(limit.soft);
    added->set_hard(limit.hard);
  }
}

v1::RankSpec MakeRankSpec(const WorldPlan& world, const RankProgram& program,
                          const PlannedRank& rank, const JobEnvironment& environment) {
  v1::RankSpec spec;
  spec.set_rank(rank.rank);
  if (program.local_rank_position > 0) {
    spec.set_own_argument("--local_rank=" + std::to_string(rank.local_rank));
  }
  for (const auto& variable : MakeRankEnvironment(world, rank, environment)) {
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

HostCores ReadCores(const v1::PrepareResponse& host) {
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

void SetDevices(const JobPlan& job, const JobHost& host, v1::PrepareRequest* request) {
  request->set_device(ConvertDevice(job.flags.device));
  for (const std::string& device : host.devices) request->add_devices(device);
}

v1::InspectRequest MakeInspectRequest(const JobPlan& job, const JobHost& host,
                                      const std::string& python) {
  v1::InspectRequest request;
  request.set_job_id(job.job_id);
  request.set_working_directory(host.working_directory);
  request.set_python(python);
  for (const auto& variable : host.exports) AddVariable(variable, request.mutable_environment());
  return request;
}

v1::PrepareRequest MakePrepareRequest(const JobPlan& job, const RankProgram& program, int node_rank,
                                      int generation) {
  const JobHost& host = job.world.hosts[node_rank];
  v1::PrepareRequest request;
  request.set_job_id(job.job_id);
  request.set_generation(static_cast<std::uint32_t>(generation));
  request.set_rank_count(host.rank_count());
  request.set_program(program.argv.front());
  request.set_script(program.script);
  request.set_working_directory(host.working_directory);
  request.set_lease_master_port(node_rank == 0);
  request.set_master_port(job.flags.master_port);
  SetDevices(job, host, &request);
  // Without it the host's daemon takes its own PATH, which is what the ranks inherit.
  const std::string* search_path = FindVariable(host.exports, "PATH");
  if (search_path != nullptr) request.set_search_path(*search_path);
  request.set_describe_cores(job.flags.bind_cores_to_rank);
  request.set_is_interpreter(program.has_interpreter);
  if (job.world.hosts.size() > 1 && (program.has_interpreter || IsPython(program.argv.front()))) {
    request.set_describe_python(true);
    for (const auto& variable : host.exports) AddVariable(variable, request.mutable_environment());
  }
  return request;
}

v1::LaunchRequest MakeLaunchRequest(const JobPlan& job, const RankProgram& program,
                                    const LaunchDetails& details) {
  const JobHost& host = job.world.hosts[details.node_rank];
  v1::LaunchRequest request;
  request.set_job_id(job.job_id);
  request.set_generation(details.generation);
  request.set_working_directory(host.working_directory);
  request.set_inherit_environment(true);
  request.set_grace_seconds(job.flags.grace_seconds);
  request.set_start_seconds(job.flags.start_timeout);
  request.set_forward_input(details.forward_input);
  for (const auto& variable : host.exports) AddVariable(variable, request.mutable_environment());
  // Once, not per rank: a host may have hundreds of ranks, and arguments may be large.
  request.mutable_argv()->Assign(program.argv.begin(), program.argv.end());
  request.set_own_argument_position(static_cast<std::uint32_t>(program.local_rank_position));
  AddProcessSettings(job.flags, &request);
  JobEnvironment environment = MakeJobEnvironment(job.flags);
  environment.job_id = job.job_id;
  environment.generation = details.generation;
  environment.master_addr = job.master_addr;
  environment.master_port = details.master_port;
  environment.user_set_threads = host.sets_threads;
  environment.threads_per_rank = std::max(1, details.core_count / host.rank_count());
  for (int i = 0; i < host.rank_count(); ++i) {
    const PlannedRank& rank = job.world.ranks[host.first_rank + i];
    *request.add_ranks() = MakeRankSpec(job.world, program, rank, environment);
  }
  for (const auto& [name, content] : program.files) {
    v1::JobFile* file = request.add_files();
    file->set_name(name);
    file->set_content(content);
  }
  return request;
}

Status BindHost(const v1::PrepareResponse& told, int node_rank, JobPlan* job) {
  if (!job->flags.bind_cores_to_rank) return OkStatus();
  HostCores available = ReadCores(told);
  if (!job->flags.bind_core_list.empty()) {
    DS_ASSIGN_OR_RETURN(available.cores, ParseCoreList(job->flags.bind_core_list));
  }
  return BindCores(available, node_rank, &job->world);
}

void PutInPlace(const JobHost& spare, int node_rank, JobPlan* job) {
  JobHost& host = job->world.hosts[node_rank];
  const int first_rank = host.first_rank;
  host = spare;
  host.first_rank = first_rank;
  for (int i = 0; i < host.rank_count(); ++i) {
    PlannedRank& rank = job->world.ranks[first_rank + i];
    rank.slot = host.slots[i];
    rank.cores.clear();
    rank.memory = {};
  }
}

}  // namespace ds::cli
