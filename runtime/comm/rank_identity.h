#pragma once

// RankIdentity: the rank and job of this process, as the launcher set them in the environment
// (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_PORT, DSRUN_JOB_ID, DSRUN_GENERATION).

#include <chrono>
#include <string>

#include "runtime/base/status.h"

namespace ds::comm {

struct RankIdentity {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int master_port = 0;  // 0: not given, allowed only in a world of one rank
  std::string job_id = "local";
  int generation = 0;  // number of restarts of the job
};

// Returns a world of one rank if RANK and WORLD_SIZE are unset. Without LOCAL_RANK or
// LOCAL_WORLD_SIZE all ranks are assumed to be on one host. Returns kInvalidArgument and names the
// variable if a value is not a number or contradicts the others, and kFailedPrecondition if MPI or
// Slurm has started several ranks without these variables.
StatusOr<RankIdentity> RankIdentityFromEnvironment();

// Returns the timeout for a rank that is alive but does not arrive at a collective. It is the
// seconds of DSRUN_COLLECTIVE_TIMEOUT (dsrun's --collective_timeout), else the minutes of
// DEEPSPEED_TIMEOUT, as in DeepSpeed, else 30 minutes. Returns kInvalidArgument and names a
// variable with an invalid value.
StatusOr<std::chrono::milliseconds> CollectiveTimeoutFromEnvironment();

}  // namespace ds::comm
