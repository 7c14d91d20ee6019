#pragma once

// JobMachine is the state machine of one job, from Prepare to the verdict: inputs are events,
// outputs are actions.
//
//     Prepare all hosts -> per generation: Launch all -> Watch all -> verdict -> restart or end
//
// A restart first asks the program, on another thread, because that reads the newest checkpoint.
// While the storage has problems it asks again, for minutes; then the job ends.
//
// Spares replace hosts that cannot take part from the start, and before a restart the lost ones.
// Where no spare fits, a restart uses the lost host itself, with a new daemon, and waits some
// minutes for a host that reboots. A restart also waits until the ranks of the lost hosts have
// certainly ended (fence.h), and its ranks use another port than the last generation.
//
// Pure, except that it calls the observer and the program. The caller passes the time, by
// BootTime(). Not thread-safe.

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/host/host_clock.h"
#include "cli/host/own_pauses.h"
#include "cli/job/fence.h"
#include "cli/job/generation_state.h"
#include "cli/job/job_messages.h"
#include "cli/job/job_observer.h"
#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/job/spares.h"
#include "cli/job/user_stop.h"
#include "cli/job/verdict/verdict.h"
#include "proto/agent.pb.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct RestartDecision {
  bool restart = false;
  std::string reason;  // "restart 1 of 3", "the same error at step 12 twice"
};

// Returns kDataLoss for a program that begins at step 0 again although the run had a checkpoint:
// one that the program reports, or `saved`, which a rank has reported ("" = none).
Status CheckBeginning(const RankProgram& program, const std::string& saved);

// RestartPolicy decides whether another generation follows a failed one.
//
// There is no restart if the user ended the job, if a retry cannot help (config, data, checkpoint,
// a host that rejects the job), if a process of the last generation may still run, if the same
// error occurred at the same step twice in a row (a SIGKILL is not an error of the program), or if
// the restarts are used up.
//
// A restart does not begin at step 0 by itself if the run had a checkpoint.
//
// Pure. Not thread-safe.
class RestartPolicy {
 public:
  explicit RestartPolicy(int max_restarts) : max_restarts_(max_restarts) {}

  // `obstacle` is the reason why no generation can follow, independent of the verdict; "" = none.
  RestartDecision Decide(const Verdict& verdict, const std::string& obstacle = "");

  // The restarts so far, and the verdict before the last one.
  int used() const { return used_; }
  const std::optional<Verdict>& previous() const { return previous_; }
  void Restore(int used, std::optional<Verdict> previous) {
    used_ = used;
    previous_ = std::move(previous);
  }

 private:
  const int max_restarts_;
  int used_ = 0;
  std::optional<Verdict> previous_;
};

// Retries plans the attempts at something that fails for some minutes: a file server that another
// one takes over from, a host that reboots.
//
// Pure: the caller passes the time. Not thread-safe.
class Retries {
 public:
  using Time = std::chrono::nanoseconds;

  // Plans an attempt after a failure. Returns whether the user must know: it is the first failure,
  // it has another reason than the last one, or a minute has passed.
  bool OnFailure(const std::string& why, Time now);
  // Plans the first attempt.
  void BeginAt(Time when) { next_ = when; }
  // Returns whether an attempt is due, which begins then.
  bool TakeDue(Time now);
  bool is_over(Time now) const { return until_.has_value() && now >= *until_; }
  std::optional<Time> next() const { return next_; }  // nullopt: no attempt is planned

 private:
  std::optional<Time> next_;
  std::optional<Time> until_;  // set by the first failure
  Time told_{};                // time of the last failure that the user must know
  std::string why_;
};

class JobMachine {
 public:
  using Time = std::chrono::nanoseconds;

  struct Parts {
    const Program* program;
    JobObserver* observer;
    UserStop* stop;  // the user's stop requests; receives the job's phases
    bool has_input = false;
    std::function<std::string()> draw_key;  // makes the key of each generation's ranks
    std::function<std::optional<OwnPause>(std::optional<int> number)>
        find_own_pause;                        // LeaseKeeper::FindOwnPause
    std::function<std::int64_t()> unix_nanos;  // this machine's clock
    ConvertTimeCallback convert_time;
    AbsentHosts absent = {};  // to be replaced by spares
    // Receives the state of a generation before its ranks are launched, without the daemons;
    // nullopt at its end. May be null.
    std::function<void(std::optional<v1::JobState>)> keep_state = nullptr;
    // Receives the part of the state that changes while the ranks run: when a stop begins or
    // becomes shorter, and with the clocks every second in which something happens. May be null.
    std::function<void(const v1::JobMoment&)> keep_moment = nullptr;
    // HostDaemon::ClockOffset; may be null.
    std::function<std::optional<HostClock::Offset>(int host)> find_clock = nullptr;
  };
  // All pointers must outlive this object.
  JobMachine(JobPlan job, Parts parts);
  JobMachine(const JobMachine&) = delete;
  JobMachine& operator=(const JobMachine&) = delete;

  JobActions Begin();
  // Begins with a generation that another JobMachine has launched, or was launching, in place of
  // Begin. `state` is what that one has kept.
  JobActions Resume(const v1::JobState& state);
  // Handles an input, and everything due at `now`.
  JobActions Handle(const JobInput& input, Time now);
  // Returns the time of the next due action; nullopt: none without an input.
  std::optional<Time> next() const;

  bool ended() const { return phase_ == Phase::kEnded; }
  const JobOutcome& outcome() const { return outcome_; }  // valid after the end

 private:
  enum class Phase {
    kPreparing,
    kAsking,
    kGivingUp,
    kReplacing,
    kAwaitingReturn,
    kPort,
    kFenced,
    kRunning,
    kEnded
  };

  void BeginGeneration();
  void Ask();
  void OnProgram(StatusOr<RankProgram> program);
  void RetryProgram(const Status& trouble);
  void Prepare(int node_rank);
  // Inputs of the current phase; late inputs are ignored.
  void On(const UserSignal& signal);
  void On(const HostChange& change);
  void On(const Answer<v1::PrepareResponse>& answer);
  void On(const HostGone& gone);
  void On(const ReplacementAnswer& answer);
  void On(const ProgramAnswer& answer);
  template <typename Other>
  void On(const Other& /*of a generation*/) {}

  void OnAllPrepared();
  // Ends the job because of the hosts that cannot take part, or replaces them.
  void OnUnfit(const std::map<int, Verdict>& refusals);
  void GiveUpLost();
  // Returns the reason why no generation can follow, independent of the verdict; "" = one can.
  std::string ExplainNoGeneration() const;
  // Refuses two hosts that are one machine.
  JobOutcome CheckMachines() const;
  // Checks the host's response to Prepare.
  JobOutcome CheckHost(int node_rank);
  // Warns once of the same difference.
  void WarnOfPythonDifference();
  // Returns the shortage, or only reports it if the user allows overcommitment.
  JobOutcome Overcommit(const JobOutcome& fits);
  JobOutcome BindToCores();  // on all hosts that are not lost
  JobOutcome BindHostToCores(int node_rank);
  // Replaces the first lost host that has no replacement; after the last one, reserves a port.
  void ReplaceNext();
  void Start(int host, int node_rank);  // a daemon that replaces it
  // Ends the job, which cannot begin without the hosts that are missing.
  void EndUnreplaced();
  // Waits until a daemon may start on the lost host itself.
  void AwaitReturn();
  void TryReturn();
  bool is_return() const;  // whether the replacement is the lost host itself
  void OnReplacementFailed(const std::string& why);
  void OnReplacementPrepared();
  void OnPortAnswer(const StatusOr<v1::PrepareResponse>& answer);
  v1::JobState MakeState(const std::string& rank_key) const;
  // Launches the ranks, or takes them over in this state.
  void RunGeneration(const std::string& rank_key, const v1::JobState* taken_over);
  void KeepMoment();
  void AwaitFence();
  // Begins the generation if the fence is open. Until then a signal or the loss of a host ends the
  // job.
  void PassFence();
  // Ends the job because of the hosts that were lost while no rank ran.
  void ConcludeEarlyLosses();
  // Returns whether no generation has begun.
  bool is_starting() const { return generation_ == job_.purpose.first_generation; }
  // Ends the job between generations if the user has sent a signal; else returns false.
  bool EndForUser();
  // Checks whether the running generation has ended.
  void FollowGeneration();
  // Ends the job with the outcome, or begins another generation.
  void Conclude(JobOutcome outcome);
  void End(JobOutcome outcome);
  // Blames a pause of this process if a host was lost because of it.
  JobOutcome JudgeOwnPause(JobOutcome outcome) const;
  void Lose(int node_rank, bool ended) { lost_[node_rank] = {job_.world.hosts[node_rank], ended}; }

  JobPlan job_;  // ranks are bound to cores after the hosts have reported them
  const Parts parts_;
  JobObserver* const observer_;
  UserStop* const stop_;
  PreparedHosts prepared_;
  SparePool spares_;
  RestartPolicy restarts_;
  Fence fence_;
  Phase phase_ = Phase::kPreparing;
  int generation_;
  RankProgram program_;  // of this generation
  Retries asking_;       // of the program
  std::string saved_;    // the last checkpoint that a rank has reported; "" = none
  struct LostHost {
    JobHost host;
    bool ended;  // it has reported the end of its ranks
  };
  std::string python_warning_;              // the last one
  std::map<int, LostHost> lost_;            // by node rank
  std::map<int, HostChange> early_losses_;  // while no rank ran; by number
  std::string unended_;  // processes of the last generation that may still run; "" = none
  int awaited_ = 0;      // number of outstanding responses
  Replacement replacement_{.node_rank = -1};  // of the first lost host; -1: none yet
  int next_number_ = 0;                       // of the next replacement's daemon
  Retries returning_;                         // of lost hosts
  std::optional<GenerationState> run_;
  std::optional<Time> moment_kept_;  // of this generation
  std::string stop_kept_;            // the stop in that moment
  std::optional<OwnPause> pause_;    // of this process, at the failure of the generation
  Time now_{};
  JobActions actions_;  // of the current input
  JobOutcome outcome_;
};

}  // namespace ds::cli
