#pragma once

// JobPlan: everything dsrun knows of a job before it contacts anybody, made by one pure function
// from what the user asked for and what this process sees.
//
// Threads: a plain value.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags/launch_flags.h"
#include "cli/launch/launch_plan.h"
#include "cli/launch/secrets.h"
#include "runtime/base/status.h"

namespace ds::cli {

// This says what ranks will hold of their host's memory, as far as that is known before they start.
struct MemoryNeed {
  struct OfRank {
    std::int64_t bytes = 0;  // of each at the most; 0 = not known
    std::string parts = {};  // what it will hold of that, and when
  };
  OfRank on_cpu, on_gpu;          // as it computes there; a GPU's own memory is not in it
  std::int64_t shared_bytes = 0;  // of all of a host's together
  bool only_warns = false;        // --allow_overcommit
};

// The purpose of the ranks, as the command that starts them says.
struct JobPurpose {
  // The ranks are our own: they are told which device to use, report steps, wait for each other and
  // read no input.
  bool built_in = false;
  bool trains = false;           // and train
  std::int64_t total_steps = 0;  // 0 = not known
  int first_generation = 0;
  std::vector<std::string> closing_lines;  // for the user, when the job has ended well
  MemoryNeed memory = {};
};

struct JobPlan {
  std::string job_id;
  std::filesystem::path run_directory;
  RedactedWords command_line;  // dsrun's own, as it may be shown
  LaunchFlags flags;           // as they were given, and checked
  WorldPlan world;
  std::vector<JobHost> spares;
  LogFilter shown;                   // by the console
  Environment exports;               // that the user has named, over the environment of every host
  std::string master_addr;           // without other hosts; their daemons tell of a better one
  std::string path_source;           // as GatheredExports
  std::vector<std::string> notices;  // for the user, before anything starts
  JobPurpose purpose;

  // Hosts are numbered by their place in the world, and spares behind them.
  const JobHost& host(int number) const;
  int spare_number(int spare) const { return static_cast<int>(world.hosts.size()) + spare; }
  int host_count() const { return spare_number(static_cast<int>(spares.size())); }
};

// The shell that dsrun was called in, as far as a plan depends on it.
struct Shell {
  Environment environment;
  std::filesystem::path working_directory;
};

// The user's wishes and where they were uttered: all that a plan is made from but the purpose.
struct JobRequest {
  std::string job_id;
  std::filesystem::path run_directory;  // absolute, so that it means the same from anywhere
  RedactedWords command_line;
  LaunchFlags flags;
  LaunchPlan launch;  // made from `flags`
  Environment exports;
  std::string path_source;  // as GatheredExports
  Shell shell;
  std::vector<std::string> notices;  // of those who have made the rest
};

// Fills in what ranks of this host get and where they start. This machine's ranks inherit the
// shell's environment, those of another get what DeepSpeed exports of it.
void CompleteHost(const LaunchFlags& flags, const Environment& exports, const Shell& shell,
                  JobHost* host);

// Pure.
JobPlan PlanJob(JobRequest request, JobPurpose purpose = {});

// Fills in what this process sees: this host, the hostfile, env files, the time. The job's id is
// "train-20261121-071203-4f2a": the name of what it runs, cut down to letters, digits, '-', '_' and
// '.', when (local time), and something random, so that ids sort by time and differ on this
// machine. Its run directory is --run_dir, else runs/<id>. Refuses a command line that shows where
// secrets were (launch/secrets.h). One thread at a time.
StatusOr<JobRequest> GatherJobRequest(std::string_view name, const LaunchFlags& flags,
                                      const std::vector<std::string>& command_line);

// Makes what job.json says of every job before it starts. `kind` is "run" or "train"; the caller
// adds what is particular to it. `argv` is what ranks of a user's program execute; it is shown
// without secrets, and none of other kinds.
nlohmann::ordered_json DescribeJob(std::string_view kind, const JobPlan& plan,
                                   const std::vector<std::string>& argv = {});

}  // namespace ds::cli
