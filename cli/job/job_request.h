#pragma once

// JobRequest: everything the controller needs to know of a job, and the wire messages made of it.
//
// Pure. Threads: plain values.

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/flags/process_settings.h"
#include "cli/plan/rank_environment.h"
#include "cli/plan/world_plan.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

// The program that the ranks of one generation execute. argv[0] == "" is the host's dsrank; the
// text v1::kJobDirectory (proto/job_directory.h) in argv is the folder of `files`.
struct RankProgram {
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> files;  // name, content
  std::vector<std::string> notices;                        // for the user
};

// The properties of a spare.
struct SpareHost {
  HostSlots slots;
  std::string working_directory;
  Environment exports;
  bool remote = false;
};

struct JobRequest {
  std::string job_id;
  WorldPlan plan;
  std::vector<std::string> working_directories;  // by host
  // By host: its ranks do not inherit the environment of dsrun. Empty: all do.
  std::vector<bool> remote;
  v1::PrepareRequest::Device device = v1::PrepareRequest::DEVICE_AUTO;
  std::vector<Environment> exports;  // by host, over its own environment
  std::string master_addr;
  bool master_addr_named = false;  // by the user: it is host 0's and no other's
  int master_port = 0;             // 0 = any free one
  bool one_device_per_rank = false;
  bool user_set_threads = false;
  std::optional<int> umask;
  std::vector<ProcessLimit> limits;
  // Puts --local_rank=N at this place of argv; 0 = does not.
  int local_rank_position = 0;
  double grace_seconds = 15;
  int max_restarts = 0;
  // Divides each host's cores among its ranks: these, or all the host has when empty.
  bool bind_cores = false;
  std::vector<int> core_list;
  int first_generation = 0;
  std::vector<SpareHost> spares;
  // The files that must be on every host: argv[0] of all generations, and the file among their
  // arguments that it reads ("" = none).
  std::string executable;
  std::string script;
  // Makes the program of generation n; an error ends the job (kDataLoss, kNotFound: no usable
  // checkpoint).
  std::function<StatusOr<RankProgram>(int generation)> program;
};

// Binds the ranks of every host to the cores that its daemon has told of. An error when a host has
// too few.
Status BindHosts(const std::vector<v1::PrepareResponse>& hosts, JobRequest* job);

// The ranks of host `node_rank` go to the spare, unbound at first. Requires: it has as many slots.
void PutInPlace(const SpareHost& spare, int node_rank, JobRequest* job);

v1::PrepareRequest MakePrepareRequest(const JobRequest& job, int node_rank);

// `core_count` is the host's, for the threads of unbound ranks.
struct LaunchDetails {
  int node_rank = 0;
  int generation = 0;
  int master_port = 0;
  int core_count = 0;
  bool forward_input = false;  // to rank 0
};
v1::LaunchRequest MakeLaunchRequest(const JobRequest& job, const RankProgram& program,
                                    const LaunchDetails& details);

}  // namespace ds::cli
