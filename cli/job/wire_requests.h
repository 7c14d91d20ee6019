#pragma once

// The messages that a host's daemon is sent, made of the plan of the job, and what the answers
// change in it.
//
// Pure.

#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

v1::PrepareRequest MakePrepareRequest(const JobPlan& job, const RankProgram& program, int node_rank,
                                      int generation);

// `core_count` is the host's, for the threads of unbound ranks.
struct LaunchDetails {
  int node_rank = 0;
  int generation = 0;
  int master_port = 0;
  int core_count = 0;
  bool forward_input = false;  // to rank 0
};
v1::LaunchRequest MakeLaunchRequest(const JobPlan& job, const RankProgram& program,
                                    const LaunchDetails& details);

// Binds the ranks of host `node_rank` to the cores that its daemon has told of, or to those of
// --bind_core_list, if the job asks for it. An error when there are too few.
Status BindHost(const v1::PrepareResponse& told, int node_rank, JobPlan* job);

// The ranks of host `node_rank` go to the spare, unbound at first. Requires: it has as many slots.
void PutInPlace(const JobHost& spare, int node_rank, JobPlan* job);

}  // namespace ds::cli
