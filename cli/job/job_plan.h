#pragma once

// JobPlan: everything dsrun knows of a job before it contacts anybody.
//
// Threads: a plain value.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags/launch_flags.h"
#include "cli/plan/launch_plan.h"
#include "cli/plan/world_plan.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct JobPlan {
  std::string job_id;
  LaunchFlags flags;  // as they were given, and checked
  WorldPlan world;
  std::vector<JobHost> spares;
  Environment exports;      // that the user has named, over the environment of every host
  std::string master_addr;  // without other hosts; their daemons tell of a better one
  int first_generation = 0;
  std::vector<std::string> notices;  // for the user, before anything starts
  // The ranks are our own: they are told which device to use, report steps, wait for each other and
  // read no input.
  bool built_in = false;
  bool trains = false;                     // and train
  std::int64_t total_steps = 0;            // 0 = not known
  std::vector<std::string> closing_lines;  // for the user, when the job has ended well

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

// Pure. Requires: `launch` was made from `flags`.
JobPlan PlanJob(std::string job_id, LaunchFlags flags, LaunchPlan launch, Environment exports,
                const Shell& shell);

// "train-20261121-071203-4f2a": what it runs, when (local time), and something random, so that
// names sort by time and differ on this machine. `name` is cut down to letters, digits, '-', '_'
// and '.'.
std::string MakeJobId(std::string_view name, std::int64_t unix_nanos);

// The same as PlanJob with what this process sees: this host, the hostfile, env files. One thread
// at a time.
StatusOr<JobPlan> PlanJobFromHere(std::string job_id, const LaunchFlags& flags);

}  // namespace ds::cli
