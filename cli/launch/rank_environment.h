#pragma once

// The environment every rank is given: the names that torchrun, DeepSpeed and MPI programs read.
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
  int generation = 0;  // 0 at first, one more for each restart
  int max_restarts = 0;
  std::string run_id;  // "" = the job's name
  std::string role = "default";
  std::string master_addr;
  int master_port = 0;            // 0 = not known yet: MASTER_PORT is left out
  std::string interface;          // "" = DSRUN_INTERFACE as exported
  double lease_seconds = 0;       // of every other host; 0 = none
  double collective_timeout = 0;  // 0 = DSRUN_COLLECTIVE_TIMEOUT as exported
  bool one_device_per_rank = false;
  // OMP_NUM_THREADS: the user's own value stays; else the number of a rank's bound cores; else
  // this, unless it is 0 (the host's cores are not known).
  bool user_set_threads = false;
  int threads_per_rank = 0;
};

// The part of it that flags say; the rest is as it is when nothing is known.
JobEnvironment MakeJobEnvironment(const LaunchFlags& flags);

// Over the host's own environment; in a fixed order, every name once.
Environment MakeRankEnvironment(const WorldPlan& plan, const PlannedRank& rank,
                                const JobEnvironment& job);

// True for a variable that every rank gets from dsrun, whatever is exported under its name.
bool IsOwnVariable(std::string_view name);

// The address at which the ranks of `plan` meet unless the user says otherwise: this host's
// loopback when one host runs them all, else the first host by its name without "user@".
std::string ChooseMasterAddress(const WorldPlan& plan);

}  // namespace ds::cli
