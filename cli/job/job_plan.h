#pragma once

// JobPlan is the complete description of a job before dsrun contacts any host. A pure function
// makes it from the user's request and the state of this process.
//
// Thread-safe as a plain value.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags/launch_flags.h"
#include "cli/job/log_file.h"
#include "cli/job/run_directory.h"
#include "cli/launch/launch_plan.h"
#include "cli/launch/secrets.h"
#include "runtime/base/status.h"

namespace ds::cli {

// The host memory that ranks will use, as far as it is known before they start.
struct MemoryNeed {
  struct OfRank {
    std::int64_t bytes = 0;  // maximum per rank; 0 = unknown
    std::string parts = {};  // the contents and the time of the maximum
  };
  OfRank on_cpu, on_gpu;          // by device of the computation; without a GPU's own memory
  std::int64_t shared_bytes = 0;  // shared by all ranks of a host
  bool only_warns = false;        // --allow_overcommit
};

// The purpose of the ranks, set by the command that starts them.
struct JobPurpose {
  // The ranks run dsrank: they get the device to use, report steps, wait for each other and read no
  // input.
  bool built_in = false;
  bool trains = false;           // they train
  std::int64_t total_steps = 0;  // 0 = unknown
  int first_generation = 0;
  std::filesystem::path model = {};        // folder that gets the model of --save_hf; "" = none
  std::vector<std::string> closing_lines;  // for the user, after success
  MemoryNeed memory = {};
};

struct JobPlan {
  std::string job_id;
  std::filesystem::path run_directory;
  RedactedWords command_line;  // of dsrun, without secrets
  LaunchFlags flags;           // as given, and checked
  WorldPlan world;
  std::vector<JobHost> spares;
  LogFilter shown;          // by the console
  Environment exports;      // named by the user; override the environment of every host
  std::string master_addr;  // used without other hosts; with them their daemons report a better one
  std::string path_source;  // see GatheredExports
  std::vector<std::string> notices;  // for the user, before anything starts
  JobPurpose purpose;

  // Returns whether another host may take this place: --master_addr names the one of rank 0.
  bool IsReplaceable(int node_rank) const { return node_rank != 0 || flags.master_addr.empty(); }
  // Hosts are numbered by index in the world; spares follow.
  const JobHost& host(int number) const;
  int spare_number(int spare) const { return static_cast<int>(world.hosts.size()) + spare; }
  std::vector<int> CountSpareSlots() const;  // by spare
  int host_count() const { return spare_number(static_cast<int>(spares.size())); }
};

// The part of the calling shell's state that a plan depends on.
struct Shell {
  Environment environment;
  std::filesystem::path working_directory;
};

// The user's request and its context: the input of a plan, except the purpose.
struct JobRequest {
  std::string job_id;
  std::filesystem::path run_directory;  // absolute
  RedactedWords command_line;
  LaunchFlags flags;
  LaunchPlan launch;  // made from `flags`
  Environment exports;
  std::string path_source;  // see GatheredExports
  Shell shell;
  std::vector<std::string> notices;  // collected while the other members were made
};

// Fills in the environment and the working directory of the ranks of this host. Ranks on this
// machine inherit the shell's environment; ranks on another machine get the variables that
// DeepSpeed exports.
void CompleteHost(const LaunchFlags& flags, const Environment& exports, const Shell& shell,
                  JobHost* host);

// Pure.
JobPlan PlanJob(JobRequest request, JobPurpose purpose = {});

// Collects the state of this process: this host, the hostfile, env files, the time. The job's id
// is, for example, "train-20261121-071203-4f2a91c05be7d386": the name of the program, reduced to
// letters, digits, '-', '_' and '.', the local time, and 64 random bits, so that ids sort by time
// and differ everywhere. Its run directory is --run_dir, else runs/<id>. Rejects a command line
// that contains replacement marks of secrets (launch/secrets.h). Not thread-safe.
StatusOr<JobRequest> GatherJobRequest(std::string_view name, const LaunchFlags& flags,
                                      const std::vector<std::string>& command_line);

// The limit of the ranks' logs.
LogLimit LimitLogsOf(const LaunchFlags& flags);

// Creates the run directory of a new job, with the limit of its logs. Without --run_dir the folder
// is a new one: if `*path` exists, `*job_id` gets another random part, and `*path` the id as name.
StatusOr<std::unique_ptr<RunDirectory>> CreateRunDirectory(const LaunchFlags& flags,
                                                           std::string* job_id,
                                                           std::filesystem::path* path);

// Makes the part of job.json that all jobs have. `kind` is "run" or "train"; the caller adds the
// rest. `argv` is the command of a user's program, shown without secrets; empty for other kinds.
nlohmann::ordered_json DescribeJob(std::string_view kind, const JobPlan& plan,
                                   const std::vector<std::string>& argv = {});

}  // namespace ds::cli
