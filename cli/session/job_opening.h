#pragma once

// What the daemon of this machine is asked along with the job: to look at the host, and where
// nothing else has to be known for it, to start the ranks.
//
// Ranks are started so when this is the only host and no core has to be chosen for them; what they
// are told of the host (its cores, a free port) this process finds out as the daemon would.

#include "cli/host/warm_daemon.h"
#include "cli/job/job_request.h"

namespace ds::cli {

struct OpeningOptions {
  bool launches = false;       // if it can be; else the ranks wait for the controller's own launch
  bool forward_input = false;  // to rank 0
};

// Requires, to launch: the program of the job's first generation costs nothing to make, and all
// that must be done before ranks may run has been done.
JobOpening MakeOpening(const JobRequest& job, int node_rank, const OpeningOptions& options);

}  // namespace ds::cli
