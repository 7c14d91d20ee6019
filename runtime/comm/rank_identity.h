#pragma once

// RankIdentity: which rank of which job this process is, as the launcher said in the environment
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
  int master_port = 0;  // 0: none was given, which only a world of one rank allows
  std::string job_id = "local";
  int generation = 0;  // counts restarts of the job
};

// Without RANK and WORLD_SIZE: a world of this one rank. A value that is not a number or does not
// fit the others is kInvalidArgument and names the variable. Without LOCAL_RANK or LOCAL_WORLD_SIZE
// all ranks are taken to be on one host.
StatusOr<RankIdentity> RankIdentityFromEnvironment();

// Reads how long ranks wait for one that is alive but does not come to a collective: the seconds of
// DSRUN_COLLECTIVE_TIMEOUT (dsrun's --collective_timeout), else, as DeepSpeed reads it, the minutes
// of DEEPSPEED_TIMEOUT, else half an hour. kInvalidArgument names a variable that is no such time.
StatusOr<std::chrono::milliseconds> CollectiveTimeoutFromEnvironment();

}  // namespace ds::comm
