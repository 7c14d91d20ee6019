#pragma once

// JobController: one job from Prepare to its verdict.
//
//     Prepare all hosts -> per generation: Launch all -> Watch all -> verdict -> restart or end
//
// Threads: Run() on one thread; OnSignal and OnHostChange from any. The observer is called on Run's
// thread. Lifetimes: daemons, observer and input outlive the controller.

#include <optional>
#include <vector>

#include "cli/job/generation_run.h"
#include "cli/job/host_daemon.h"
#include "cli/job/job_observer.h"
#include "cli/job/job_request.h"
#include "cli/job/verdict.h"

namespace ds::cli {

class JobController {
 public:
  // `daemons` by host of job.plan. `input` goes to rank 0; null = it reads nothing.
  JobController(JobRequest job, std::vector<HostDaemon*> daemons, JobObserver* observer,
                InputForwarder* input = nullptr);

  // None: every rank succeeded.
  std::optional<Verdict> Run();

  // SIGINT, SIGTERM and SIGHUP stop the job; SIGUSR1 and SIGUSR2 go on to its ranks.
  void OnSignal(int signal) { inputs_.PutUrgent({.signal = signal}); }
  // From the keeper of the hosts' leases.
  void OnHostChange(const HostChange& change) { inputs_.PutUrgent({.host_change = change}); }

 private:
  std::optional<Verdict> PrepareHosts(const RankProgram& program);
  std::optional<Verdict> CheckHost(const std::string& host, const v1::PrepareResponse& response);
  // A signal or the loss of a host that came while no rank ran.
  std::optional<Verdict> TakeEarlyEnd(int generation);

  JobRequest job_;  // its ranks get their cores once the hosts have told of them
  JobObserver* const observer_;
  PreparedJob prepared_;
  InputForwarder* const standard_input_;
  JobInputs inputs_;
};

}  // namespace ds::cli
