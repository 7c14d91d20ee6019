#pragma once

// JobController: one job from Prepare to its verdict.
//
//     Prepare all hosts -> per generation: Launch all -> Watch all -> verdict -> restart or end
//
// Before a restart spares take the places of lost hosts; where that cannot be, there is none. Nor
// is there one before the ranks of the lost hosts have ended for certain (fence.h), and its ranks
// meet at another port than those of the last generation.
//
// Threads: Run() on one thread; OnSignal and OnHostChange from any. The observer is called on Run's
// thread. Lifetimes: program, daemons, observer and what the options name outlive the
// controller.

#include <map>
#include <string>
#include <vector>

#include "cli/host/host_daemon.h"
#include "cli/host/host_liveness.h"
#include "cli/host/lease_keeper.h"
#include "cli/job/fence.h"
#include "cli/job/generation_run.h"
#include "cli/job/input_forwarder.h"
#include "cli/job/job_observer.h"
#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/job/spares.h"
#include "cli/job/user_stop.h"
#include "cli/job/verdict/verdict.h"

namespace ds::cli {

class JobController {
 public:
  struct Options {
    InputForwarder* input = nullptr;      // goes to rank 0; null = it reads nothing
    SpareStarter* spares = nullptr;       // of job.spares; null = there are none
    std::string master_addr;              // as the hosts' daemons have told; "" = as planned
    UserStop* stop = nullptr;             // not null: what the user wants; is told the job's phases
    const LeaseKeeper* leases = nullptr;  // null = there are none
  };
  // `daemons` by host of job.world.
  JobController(JobPlan job, const Program* program, const std::vector<HostDaemon*>& daemons,
                JobObserver* observer, const Options& options);

  JobOutcome Run();

  // SIGINT, SIGTERM and SIGHUP stop the job; SIGUSR1 and SIGUSR2 go on to its ranks. Returns what
  // is to be done to daemons and to calls: this thread may be waiting for them.
  StopStep OnSignal(int signal);
  // From the keeper of the hosts' leases.
  void OnHostChange(const HostChange& change) { inputs_.PutUrgent({.host_change = change}); }

 private:
  JobOutcome PrepareHosts(const RankProgram& program, int generation);
  // Says why there is none, whatever the verdict; "" = there may be one.
  std::string ExplainNoGeneration() const;
  // Keeps the answer and says whether the host is ready.
  JobOutcome TakeAnswer(int node_rank, const StatusOr<v1::PrepareResponse>& answer);
  JobOutcome CheckHost(const std::string& host, const v1::PrepareResponse& response);
  JobOutcome CheckMemory(const JobHost& host, const v1::PrepareResponse& response);
  // Refuses, or, if the user wants it so, says what is short.
  JobOutcome Overcommit(const JobOutcome& fits);
  JobOutcome BindToCores();
  // Says why there cannot be another generation: a host is lost that no spare can replace; "" =
  // none is.
  std::string ExplainMissingHosts() const;
  // False: a host's place stays empty, and the observer knows why.
  bool ReplaceLostHosts(const RankProgram& program, int generation);
  bool ReplaceHost(int node_rank, const RankProgram& program, int generation);
  // Nothing is heard of it, or said to it, any more. `ended`: its ranks have, as it told.
  void GiveUp(int node_rank, bool ended);
  JobOutcome LeaseNewPort(const RankProgram& program, int generation);
  // Waits until the fence is open, and says whether a signal or the loss of a host has ended the
  // job while no rank ran.
  JobOutcome TakeEarlyEnd(int generation);
  // Blames this process where a host was lost because of it.
  JobOutcome JudgeOwnPause(JobOutcome outcome) const;

  JobPlan job_;  // its ranks get their cores once the hosts have told of them
  const Program* const program_;
  JobObserver* const observer_;
  PreparedHosts prepared_;
  const Options options_;
  UserStop* const stop_;
  SparePool spares_;
  std::map<int, bool> lost_;  // by node rank: whether its ranks have ended, as it told
  Fence fence_;
  std::string unended_;  // says what of the last generation may live on; "" = nothing
  JobInputs inputs_;
};

}  // namespace ds::cli
