#pragma once

// Makes the requests to a host's daemon from the plan of the job, and applies the responses to the
// plan.
//
// Pure.

#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "proto/dsrun.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

namespace v1 = ::dsrun::v1;

// Sets the devices that the job requires of the host.
void SetDevices(const JobPlan& job, const JobHost& host, v1::PrepareRequest* request);

v1::PrepareRequest MakePrepareRequest(const JobPlan& job, const RankProgram& program, int node_rank,
                                      int generation);

// `core_count` is the host's number of cores, for the threads of unbound ranks.
struct LaunchDetails {
  int node_rank = 0;
  int generation = 0;
  int master_port = 0;
  int core_count = 0;
  bool forward_input = false;  // to rank 0
};
v1::LaunchRequest MakeLaunchRequest(const JobPlan& job, const RankProgram& program,
                                    const LaunchDetails& details);

// `python` is an interpreter to ask; "" = none.
v1::InspectRequest MakeInspectRequest(const JobPlan& job, const JobHost& host,
                                      const std::string& python);

// Binds the ranks of host `node_rank` to the cores that its daemon has reported, or to the cores of
// --bind_core_list, if the job asks for it. Returns an error if there are too few.
Status BindHost(const v1::PrepareResponse& told, int node_rank, JobPlan* job);

// Moves the ranks of host `node_rank` to the spare, unbound at first. Requires: it has as many
// slots.
void PutInPlace(const JobHost& spare, int node_rank, JobPlan* job);

}  // namespace ds::cli
