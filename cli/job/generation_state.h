#pragma once

// GenerationState: one generation of ranks on all hosts, from Launch to the end of the last event
// stream.
//
// The first failure anywhere, a lost daemon, an observer's error or the user (user_stop.h) stops
// every rank everywhere. SIGUSR1 and SIGUSR2 go on to every rank.
//
// Pure but for the observer, which is told on the way: times are given, and what is to be done is
// appended to a list. Threads: one at a time.

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/job/job_messages.h"
#include "cli/job/job_observer.h"
#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/job/user_stop.h"
#include "cli/job/value_exchange.h"
#include "cli/job/verdict/failure_judge.h"
#include "cli/job/verdict/stopped_ranks.h"
#include "cli/job/verdict/verdict.h"

namespace ds::cli {

struct PreparedHost {
  int number = 0;                                                // JobPlan::host's
  StatusOr<v1::PrepareResponse> answer = v1::PrepareResponse();  // good where ranks run
};
using PreparedHosts = std::vector<PreparedHost>;  // by node rank

// Returns none when the host is not, or no longer, one of the world.
std::optional<int> FindNodeRank(const PreparedHosts& hosts, int number);

// SIGUSR1 and SIGUSR2 mean something to the ranks, not to dsrun.
bool IsForwarded(int signal);

class GenerationState {
 public:
  using Time = std::chrono::nanoseconds;

  struct Parts {
    int number = 0;
    const JobPlan* job;
    const RankProgram* program;
    const PreparedHosts* hosts;
    JobObserver* observer;
    UserStop* stop;  // an input with such a signal says that it has changed
    bool has_input = false;
    Time patience{};  // with a rank that stands still
    std::string rank_key;
    JobActions* actions;  // get what is to be done
  };
  // Everything given outlives the generation.
  explicit GenerationState(const Parts& parts);

  void Begin();
  // An input that is about this generation, or about all. Does what is due at `now` as well.
  void Handle(const JobInput& input, Time now);
  // When something will be due; none: only when something is heard.
  std::optional<Time> next() const;

  // No host that was launched has more to say, or nobody waits for them.
  bool ended() const { return given_up_ || (unanswered_launches_ == 0 && open_streams_ == 0); }
  bool failed() const { return judge_.failed(); }
  // Says as well where ranks may live on: on hosts, other than the one the verdict is about, that
  // were given up before they told of their ranks' end.
  JobOutcome Conclude() const;
  // Lists then the node ranks of hosts that are gone or whose daemons are.
  const std::set<int>& lost() const { return lost_; }
  // Tells whether the ranks of this host have ended, by its daemon's own word.
  bool HasEnded(int node_rank) const { return ended_.contains(node_rank); }
  // Says which process has not ended although it was killed; "" = none.
  const std::string& unended() const { return unended_; }
  // The last checkpoint that a rank has reported; "" = none.
  const std::string& saved() const { return saved_; }

 private:
  struct Host {
    bool launched = false;
    bool gone = false;  // its stream has ended, or it is lost: nothing is said to it any more
    std::optional<Time> stop_again_at;  // nobody has answered it
    std::deque<int> signals;            // on their way, one after another
  };

  void On(const UserSignal& signal);
  void On(TimePassed) {}
  void On(const ProgramAnswer&) {}
  // These are about a host, whose node rank they get.
  void On(const HostChange& change, int node_rank);
  void On(const Answer<v1::LaunchResponse>& answer, int node_rank);
  void On(const Answer<v1::StopResponse>& answer, int node_rank);
  void On(const Answer<v1::SignalResponse>& answer, int node_rank);
  void On(const Answer<v1::ShareResponse>& answer, int node_rank);
  void On(const HostEvents& events, int node_rank);
  void On(const StreamEnd& end, int node_rank);
  template <typename Other>
  void On(const Other& /*of the job*/, int /*node_rank*/) {}
  void OnEvent(int node_rank, const v1::Event& event,
               const std::shared_ptr<const v1::EventBatch>& batch);
  void OnGenerationEnded(int node_rank, const v1::GenerationEnded& end);
  void SendWhatIsDue();
  void SendSignal(int node_rank);
  void ForwardSignal(int signal);
  // For what has failed; then by what the user wants.
  void StopFailed(double grace_seconds);
  void StopHosts(double grace_seconds);
  void StopHost(int node_rank);
  void LetGo(int node_rank);  // nothing is said to this host any more
  void GiveUpHosts();
  template <typename Action>
  void Act(int node_rank, Action what);
  template <typename Request>
  Request MakeRequest() const;
  const std::string& host_name(int node_rank) const { return job_.world.hosts[node_rank].host; }
  std::vector<int> launched() const;

  const Parts parts_;
  const JobPlan& job_;
  FailureJudge judge_;
  StoppedRanks stopped_ranks_;  // of a job whose ranks wait for each other
  std::vector<Host> hosts_;     // by node rank
  ValueExchange exchange_;      // of a job on several hosts
  std::set<int> ended_;         // whose ranks have ended, as they told
  bool given_up_ = false;
  int unanswered_launches_ = 0;
  int open_streams_ = 0;
  std::optional<double> stop_grace_;  // of the last stop
  std::set<int> lost_;
  std::string unended_;
  std::string saved_;
  std::optional<Status> observer_failed_;  // it is not called any more
  Time now_{};
};

}  // namespace ds::cli
