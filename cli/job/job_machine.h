#pragma once

// JobMachine: one job from Prepare to its verdict, as a state machine: what is heard goes in, what
// is to be done comes out.
//
//     Prepare all hosts -> per generation: Launch all -> Watch all -> verdict -> restart or end
//
// A restart asks the program first, on another thread: it reads the newest checkpoint. Where the
// storage has trouble it is asked again for minutes; then the job ends.
//
// Before a restart spares take the places of lost hosts; where that cannot be, there is none. Nor
// is there one before the ranks of the lost hosts have ended for certain (fence.h), and its ranks
// meet at another port than those of the last generation.
//
// Pure but for the observer, which is told on the way, and the program, which is asked: times are
// given, by BootTime(). Threads: one at a time.

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
#include "runtime/base/status.h"

namespace ds::cli {

struct RestartDecision {
  bool restart = false;
  std::string reason;  // "restart 1 of 3", "the same error at step 12 twice"
};

// kDataLoss for a program that begins at step 0 again although the run had a checkpoint: one that
// the program tells of, or `saved`, which a rank has reported ("" = none).
Status CheckBeginning(const RankProgram& program, const std::string& saved);

// RestartPolicy: whether a failed generation is followed by another.
//
// There is no restart when the user ended the job, when trying again cannot help (config, data,
// checkpoint, a host that refuses), when a host is gone that nothing can replace, when the same
// error came at the same step twice running (a SIGKILL is no error of the program), or when the
// restarts are used up.
//
// Nor does a restart begin at step 0 by itself when the run had a checkpoint.
//
// Pure. Threads: one at a time.
class RestartPolicy {
 public:
  explicit RestartPolicy(int max_restarts) : max_restarts_(max_restarts) {}

  // `missing`: why the job's hosts are not all there any more; "" when they are, or can be.
  RestartDecision Decide(const Verdict& verdict, const std::string& missing = "");

 private:
  const int max_restarts_;
  int used_ = 0;
  std::optional<Verdict> previous_;
};

class JobMachine {
 public:
  using Time = std::chrono::nanoseconds;

  struct Parts {
    const Program* program;
    JobObserver* observer;
    UserStop* stop;  // what the user wants; is told the job's phases
    bool has_input = false;
    std::function<std::string()> draw_key;                    // for each generation's ranks
    std::function<std::optional<OwnPause>()> find_own_pause;  // as LeaseKeeper says
    std::function<std::int64_t()> unix_nanos;                 // this machine's clock
  };
  // All that is named outlives the machine.
  JobMachine(JobPlan job, Parts parts);
  JobMachine(const JobMachine&) = delete;
  JobMachine& operator=(const JobMachine&) = delete;

  JobActions Begin();
  // Does what is due at `now` as well.
  JobActions Handle(const JobInput& input, Time now);
  // When something will be due; none: only when something is heard.
  std::optional<Time> next() const;

  bool ended() const { return phase_ == Phase::kEnded; }
  const JobOutcome& outcome() const { return outcome_; }  // of one that has ended

 private:
  enum class Phase { kPreparing, kAsking, kGivingUp, kReplacing, kPort, kFenced, kRunning, kEnded };

  void BeginGeneration();
  void Ask();
  void OnProgram(StatusOr<RankProgram> program);
  void RetryProgram(const Status& trouble);
  void Prepare(int node_rank);
  // Those of this phase; what comes too late is nobody's.
  void On(const UserSignal& signal);
  void On(const HostChange& change);
  void On(const Answer<v1::PrepareResponse>& answer);
  void On(const HostGone& gone);
  void On(const SpareAnswer& answer);
  void On(const ProgramAnswer& answer);
  template <typename Other>
  void On(const Other& /*of a generation*/) {}

  void OnAllPrepared();
  // Says why there is none, whatever the verdict; "" = there may be one.
  std::string ExplainNoGeneration() const;
  // Says whether the host has answered that it is ready.
  JobOutcome CheckHost(int node_rank);
  // Refuses, or, if the user wants it so, says what is short.
  JobOutcome Overcommit(const JobOutcome& fits);
  JobOutcome BindToCores();
  // Says why there cannot be another generation: a host is lost that no spare can replace; "" =
  // none is.
  std::string ExplainMissingHosts() const;
  // A spare for the first lost host that has none; behind the last there is a port to be leased.
  void ReplaceNext();
  void OnSpareAnswered();
  void OnPortAnswer(const StatusOr<v1::PrepareResponse>& answer);
  void AwaitFence();
  // Begins the generation if the fence is open. Until then a signal or the loss of a host ends the
  // job.
  void PassFence();
  // Between generations; false when he has sent no signal.
  bool EndForUser();
  // Looks at what has become of the generation that runs.
  void FollowGeneration();
  // Ends the job with what a generation, or what there is instead of one, has come to, or begins
  // another.
  void Conclude(JobOutcome outcome);
  void End(JobOutcome outcome);
  // Blames this process where a host was lost because of it.
  JobOutcome JudgeOwnPause(JobOutcome outcome) const;
  void Lose(int node_rank, bool ended) {
    lost_[node_rank] = {job_.world.hosts[node_rank].host, ended};
  }

  JobPlan job_;  // its ranks get their cores once the hosts have told of them
  const Parts parts_;
  JobObserver* const observer_;
  UserStop* const stop_;
  PreparedHosts prepared_;
  SparePool spares_;
  RestartPolicy restarts_;
  Fence fence_;
  Phase phase_ = Phase::kPreparing;
  int generation_;
  RankProgram program_;            // of this generation
  std::optional<Time> ask_again_;  // the program, in kAsking
  std::optional<Time> ask_until_;  // since when it answers with trouble
  std::string saved_;              // the last checkpoint that a rank has reported; "" = none
  struct LostHost {
    std::string name;
    bool ended;  // its ranks have, as it told
  };
  std::map<int, LostHost> lost_;          // by node rank
  std::vector<HostChange> early_losses_;  // while no rank ran
  std::string unended_;  // says what of the last generation may live on; "" = nothing
  int awaited_ = 0;      // answers
  int spare_ = 0;        // that is to take the place of the first lost host
  std::optional<GenerationState> run_;
  std::optional<OwnPause> pause_;  // of this process, known when the generation had just failed
  Time now_{};
  JobActions actions_;  // of this input
  JobOutcome outcome_;
};

}  // namespace ds::cli
