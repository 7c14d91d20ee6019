#pragma once

// JobController executes the actions of JobMachine on the hosts' daemons, and passes their results
// back to it.
//
// Run() executes on one thread, which makes all decisions, blocks only on the queue of inputs, and
// calls the observer; other threads only add inputs. OnSignal, OnStop and OnHostChange are
// thread-safe. The program, the daemons, the observer and the pointers in the options must outlive
// the controller.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cli/host/host_daemon.h"
#include "cli/host/lease_keeper.h"
#include "cli/job/job_machine.h"
#include "cli/job/job_messages.h"
#include "cli/job/job_observer.h"
#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/job/rank_input.h"
#include "cli/job/spares.h"
#include "cli/job/user_stop.h"
#include "cli/job/verdict/verdict.h"

namespace ds::cli {

class JobController {
 public:
  struct Options {
    RankInput* input = nullptr;            // for rank 0; null = no input
    ReplacementStarter* spares = nullptr;  // null = no host is replaced
    UserStop* stop = nullptr;  // not null; the user's stop requests; receives the job's phases
    const LeaseKeeper* leases = nullptr;  // null = no leases
    // Called on a separate thread while a restart waits for a process that does not end; may be
    // null.
    HostDaemon::NoticeCallback tell_of_wait = nullptr;
    // JobMachine::Parts::keep_state; may be null.
    std::function<void(std::optional<v1::JobState>)> keep_state = nullptr;
    // JobMachine::Parts::keep_moment; may be null.
    std::function<void(const v1::JobMoment&)> keep_moment = nullptr;
  };
  // `daemons` are indexed by number; the absent hosts of `spares` have none.
  JobController(JobPlan job, const Program* program, std::map<int, HostDaemon*> daemons,
                JobObserver* observer, const Options& options);
  ~JobController();

  JobOutcome Run();
  // Takes over the generation of ranks that runs in this state, and then does the same as Run.
  JobOutcome Resume(const v1::JobState& state);

  // SIGINT, SIGTERM and SIGHUP stop the job; SIGUSR1 and SIGUSR2 are forwarded to its ranks.
  // Returns the step that the caller must apply to daemons and calls, because this thread may be
  // blocked in them.
  StopStep OnSignal(int signal);
  // Handles a change of UserStop that no signal caused.
  void OnStop();
  // Handles a change that LeaseKeeper reports.
  void OnHostChange(const HostChange& change);

 private:
  class Inputs;  // the queue of inputs

  JobOutcome Handle(const JobActions& first);
  void Perform(const JobActions& actions);
  // Sends the request; its response becomes an input.
  template <typename Request>
  void Do(const JobAction& action, const Request& request);
  void Do(const JobAction& action, const v1::LaunchRequest& request);
  void Do(const JobAction& action, const WatchHost& watch);
  void Do(const JobAction& action, AbandonHost);
  void Do(const JobAction& action, const GiveHostUp& give_up);
  void Do(const JobAction& action, const StartReplacement& start);
  void Do(const JobAction& action, AskProgram);
  void Do(const JobAction& action, ForwardInput);
  void Do(const JobAction& action, EndInput);
  Status StartInput(HostDaemon* daemon, const v1::LaunchRequest& launch);
  // Runs a task that blocks, on SSH or on the end of processes, in parallel with the loop.
  void DoAside(std::function<void()> task);

  const Options options_;
  const Program* const program_;
  std::map<int, HostDaemon*> daemons_;    // by host number
  const std::shared_ptr<Inputs> inputs_;  // shared with calls that complete later
  JobMachine machine_;
  Status input_;                     // result of the reader of this generation's input
  std::vector<std::jthread> aside_;  // one for each blocking action
};

}  // namespace ds::cli
