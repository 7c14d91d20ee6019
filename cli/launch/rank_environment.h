#pragma once

// The environment of every rank: the variables that torchrun, DeepSpeed and MPI programs read.
//
// Pure; safe from any thread.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/flags/launch_flags.h"
#include "cli/launch/launch_plan.h"

namespace ds::cli {

struct JobEnvironment {
  std::string job_id;  // "" = not known yet: DSRUN_JOB_ID is left out
  int generation = 0;  // 0 at first, then 1 more per restart
  int max_restarts = 0;
  std::string run_id;  // "" = the job's name
  std::string role = "default";
  std::string master_addr;
  int master_port = 0;            // 0 = not known yet: MASTER_PORT is left out
  std::string interface;          // "" = DSRUN_INTERFACE as exported
  double lease_seconds = 0;       // for every other host; 0 = no lease
  double collective_timeout = 0;  // 0 = DSRUN_COLLECTIVE_TIMEOUT as exported
  bool one_device_per_rank = false;
  // OMP_NUM_THREADS is the user's own value if set; else the number of cores bound to the rank;
  // else threads_per_rank, unless that is 0 (the host's cores are not known).
  bool user_set_threads = false;
  int threads_per_rank = 0;
};

// Fills in the fields that flags determine; the others keep their defaults.
JobEnvironment MakeJobEnvironment(const LaunchFlags& flags);

// Returns the variables to add to the host's own environment, in a fixed order, every name once.
Environment MakeRankEnvironment(const WorldPlan& plan, const PlannedRank& rank,
                                const JobEnvironment& job);

// True for a variable that dsrun sets for every rank, overriding any exported value.
bool IsOwnVariable(std::string_view name);

// Returns the default rendezvous address of `plan`: this host's loopback if one host runs all
// ranks, else the first host's name without "user@".
std::string ChooseMasterAddress(const WorldPlan& plan);

}  // namespace ds::cli
