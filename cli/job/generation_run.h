#pragma once

// GenerationRun: one generation of ranks on all hosts, from Launch to the end of the last event
// stream.
//
// The first failure anywhere, a lost daemon, an observer's error or the user's signal stops every
// rank everywhere. The user's second signal kills at once.
//
// Threads: Run() on one thread, plus one per host inside it that only moves events into `inputs`.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/job/bounded_queue.h"
#include "cli/job/failure_verdict.h"
#include "cli/job/host_daemon.h"
#include "cli/job/job_observer.h"
#include "cli/job/job_request.h"
#include "cli/job/verdict.h"

namespace ds::cli {

// What can happen: a signal from the user, an event of a host, the end of a host's stream.
struct JobInput {
  int signal = 0;  // not 0: from the user, and nothing else is set
  int node_rank = 0;
  std::optional<v1::Event> event;  // none: the host's stream ended
  Status stream_status;            // with this
};
using JobInputs = BoundedQueue<JobInput>;

// What Prepare has found out.
struct PreparedJob {
  std::vector<HostDaemon*> daemons;  // by host of the plan
  std::vector<int> core_counts;      // by host
  int master_port = 0;
};

// A stop by the user before any rank ran.
Verdict UserStopVerdict(int signal, int generation);

class GenerationRun {
 public:
  // Everything given outlives the run.
  GenerationRun(int generation, const JobRequest& job, const PreparedJob& prepared,
                JobObserver* observer, JobInputs* inputs);

  // None: every rank succeeded.
  std::optional<Verdict> Run(const RankProgram& program);

 private:
  std::optional<Verdict> LaunchHosts(const RankProgram& program);
  void WatchHosts();
  void Handle(const JobInput& input);
  void HandleSignal(int signal);
  void HandleEvent(const JobInput& input);
  void StopHosts(double grace_seconds, const std::string& reason);
  const std::string& host_name(int node_rank) const { return job_.plan.hosts[node_rank].host; }

  const int generation_;
  const JobRequest& job_;
  const PreparedJob& prepared_;
  JobObserver* const observer_;
  JobInputs* const inputs_;

  FailureObserver failures_;
  std::vector<int> launched_;  // node ranks
  std::size_t open_streams_ = 0;
  bool stopping_ = false;
  std::optional<Status> observer_failed_;  // it is not called any more
};

}  // namespace ds::cli
