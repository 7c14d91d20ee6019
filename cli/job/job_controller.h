#pragma once

// JobController: does what JobMachine decides, on the hosts' daemons, and tells it what has come of
// it.
//
// Threads: Run() on one thread, which decides, waits for nothing but its inputs, and calls the
// observer; what comes from others only goes into the queue of inputs. OnSignal, OnStop and
// OnHostChange from any. Lifetimes: program, daemons, observer and what the options name outlive
// the controller.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cli/host/host_daemon.h"
#include "cli/host/lease_keeper.h"
#include "cli/job/input_forwarder.h"
#include "cli/job/job_machine.h"
#include "cli/job/job_messages.h"
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
    UserStop* stop = nullptr;             // not null: what the user wants; is told the job's phases
    const LeaseKeeper* leases = nullptr;  // null = there are none
    // Is told, on a thread of its own, what a restart waits for in vain; null: nobody is.
    HostDaemon::NoticeCallback tell_of_wait = nullptr;
  };
  // `daemons` by host of job.world.
  JobController(JobPlan job, const Program* program, const std::vector<HostDaemon*>& daemons,
                JobObserver* observer, const Options& options);
  ~JobController();

  JobOutcome Run();

  // SIGINT, SIGTERM and SIGHUP stop the job; SIGUSR1 and SIGUSR2 go on to its ranks. Returns what
  // is to be done to daemons and to calls: this thread may be waiting for them.
  StopStep OnSignal(int signal);
  // The user's stop has changed without a signal of his.
  void OnStop();
  // From the keeper of the hosts' leases.
  void OnHostChange(const HostChange& change);

 private:
  class Inputs;  // the queue of inputs

  void Perform(const JobActions& actions);
  // The machine is told what becomes of it.
  template <typename Request>
  void Do(const JobAction& action, const Request& request);
  void Do(const JobAction& action, const v1::LaunchRequest& request);
  void Do(const JobAction& action, WatchHost);
  void Do(const JobAction& action, AbandonHost);
  void Do(const JobAction& action, GiveHostUp);
  void Do(const JobAction& action, const StartSpare& start);
  void Do(const JobAction& action, AskProgram);
  void Do(const JobAction& action, ForwardInput);
  void Do(const JobAction& action, EndInput);
  Status StartInput(HostDaemon* daemon, const v1::LaunchRequest& launch);
  // Does what waits, for SSH or for the end of processes, while the loop goes on.
  void DoAside(std::function<void()> task);

  const Options options_;
  const Program* const program_;
  std::map<int, HostDaemon*> daemons_;    // by the host's number
  const std::shared_ptr<Inputs> inputs_;  // of calls, too, that are answered later
  JobMachine machine_;
  Status input_;                     // of the reader of this generation's
  std::vector<std::jthread> aside_;  // one for each action that blocks
};

}  // namespace ds::cli
