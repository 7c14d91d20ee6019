#pragma once

// JobController: one job from Prepare to its verdict.
//
//     Prepare all hosts -> per generation: Launch all -> Watch all -> verdict -> restart or end
//
// Before a restart spares take the places of lost hosts; where that cannot be, there is none.
//
// Threads: Run() on one thread; OnSignal and OnHostChange from any. The observer is called on Run's
// thread. Lifetimes: daemons, observer and partners outlive the controller.

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/host/host_daemon.h"
#include "cli/job/generation_run.h"
#include "cli/job/job_observer.h"
#include "cli/job/job_request.h"
#include "cli/job/spares.h"
#include "cli/job/verdict/verdict.h"

namespace ds::cli {

class JobController {
 public:
  struct Partners {
    InputForwarder* input = nullptr;  // goes to rank 0; null = it reads nothing
    SpareStarter* spares = nullptr;   // of job.spares; null = there are none
  };
  // `daemons` by host of job.plan; hosts are numbered so, and spares behind them.
  JobController(JobRequest job, std::vector<HostDaemon*> daemons, JobObserver* observer,
                const Partners& partners);

  // None: every rank succeeded.
  std::optional<Verdict> Run();

  // SIGINT, SIGTERM and SIGHUP stop the job; SIGUSR1 and SIGUSR2 go on to its ranks.
  void OnSignal(int signal) { inputs_.PutUrgent({.signal = signal}); }
  // From the keeper of the hosts' leases.
  void OnHostChange(const HostChange& change) { inputs_.PutUrgent({.host_change = change}); }

 private:
  std::optional<Verdict> PrepareHosts();
  // None: the host is ready.
  std::optional<Verdict> TakeAnswer(int node_rank, const StatusOr<v1::PrepareResponse>& answer);
  std::optional<Verdict> CheckHost(const std::string& host, const v1::PrepareResponse& response);
  std::optional<Verdict> BindToCores();
  // Says why there cannot be another generation: a host is lost that no spare can replace; "" =
  // none is.
  std::string WhyIncomplete() const;
  // False: a host's place stays empty, and the observer knows why.
  bool ReplaceLostHosts();
  bool ReplaceHost(int node_rank);
  // A signal or the loss of a host that came while no rank ran.
  std::optional<Verdict> TakeEarlyEnd(int generation);

  JobRequest job_;  // its ranks get their cores once the hosts have told of them
  JobObserver* const observer_;
  PreparedJob prepared_;
  const Partners partners_;
  SparePool spares_;
  std::set<int> lost_;                             // node ranks
  std::vector<v1::PrepareResponse> preparations_;  // by host
  JobInputs inputs_;
};

}  // namespace ds::cli
