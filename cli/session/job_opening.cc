#include "cli/session/job_opening.h"

#include <utility>

#include "runtime/process/cpu_topology.h"

namespace ds::cli {
namespace {

// The launch that the controller will ask for (GenerationRun); what is wrong with it, it says.
void AddLaunch(const JobRequest& job, int node_rank, bool forward_input, JobOpening* opening) {
  const StatusOr<RankProgram> program = job.program(job.first_generation);
  if (!program.ok()) return;
  int port = job.master_port;
  if (port == 0) {
    StatusOr<PortLease> lease = PortLease::Take(0);
    if (!lease.ok()) return;
    port = lease->port();
    opening->port = std::move(lease).value();
  }
  opening->launch = MakeLaunchRequest(job, *program,
                                      {.node_rank = node_rank,
                                       .generation = job.first_generation,
                                       .master_port = port,
                                       .core_count = CountAllowedCpus(),
                                       .forward_input = forward_input});
}

}  // namespace

JobOpening MakeOpening(const JobRequest& job, int node_rank, const OpeningOptions& options) {
  JobOpening opening{.prepare = MakePrepareRequest(job, node_rank)};
  const bool alone = job.plan.hosts.size() == 1;
  if (options.launches && alone && !job.bind_cores) {
    AddLaunch(job, node_rank, options.forward_input, &opening);
  }
  return opening;
}

}  // namespace ds::cli
