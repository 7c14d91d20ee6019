#pragma once

// GenerationState is the state machine of one generation of ranks on all hosts, from Launch to the
// end of the last event stream.
//
// The first failure of a rank, a lost daemon, an error of the observer, or the user (user_stop.h)
// stops all ranks on all hosts. SIGUSR1 and SIGUSR2 are forwarded to every rank.
//
// Pure, except that it calls the observer. The caller passes the time, and actions are appended to
// a list. Not thread-safe.

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/host/host_clock.h"
#include "cli/job/job_messages.h"
#include "cli/job/job_moment.h"
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
  int number = 0;                                                // of its daemon
  int host = 0;                                                  // index for JobPlan::host
  StatusOr<v1::PrepareResponse> answer = v1::PrepareResponse();  // OK if ranks run there
};
using PreparedHosts = std::vector<PreparedHost>;  // by node rank

// Returns nullopt if the host is not, or no longer, part of the world.
std::optional<int> FindNodeRank(const PreparedHosts& hosts, int number);

// Returns true for SIGUSR1 and SIGUSR2, which are meant for the ranks.
bool IsForwarded(int signal);

// Converts a number of seconds of a flag.
inline std::chrono::nanoseconds FromSeconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

// Converts a time of the host with this number (HostDaemon::ConvertTime).
using ConvertTimeCallback =
    std::function<std::optional<TimeRange>(int host, std::chrono::nanoseconds boot_time)>;

class GenerationState {
 public:
  using Time = std::chrono::nanoseconds;

  struct Parts {
    int number = 0;
    bool is_taken_over = false;  // another GenerationState has launched its ranks, at least partly
    std::optional<StopInProgress> stop_in_progress = {};  // of that one
    JobOutcome stop_cause = {};                           // its failure; OK: none is known
    const JobPlan* job;
    const RankProgram* program;
    const PreparedHosts* hosts;
    JobObserver* observer;
    UserStop* stop;  // a UserSignal input means that it has changed
    bool has_input = false;
    Time timeout{};  // timeout for a rank that is stopped
    std::string rank_key;
    ConvertTimeCallback convert_time;
    JobActions* actions;  // receives the actions
  };
  // All pointers must outlive the generation.
  explicit GenerationState(const Parts& parts);

  void Begin();
  // Handles an input for this generation or for the job, and everything due at `now`.
  void Handle(const JobInput& input, Time now);
  // Returns the time of the next due action; nullopt: none without an input.
  std::optional<Time> next() const;

  // Returns true when no launched host has more events and each lost one has been probed, or when
  // they are given up.
  bool ended() const {
    return given_up_ || (unanswered_launches_ == 0 && open_streams_ == 0 && unprobed_.empty());
  }
  bool failed() const { return judge_.failed(); }
  // Describes the stop that is in progress; nullopt: there is none.
  std::optional<v1::StopState> DescribeStop() const;
  // Returns the outcome. The verdict also names hosts on which ranks may still run: given-up hosts,
  // other than the failed one, that did not report the end of their ranks.
  JobOutcome Conclude() const;
  // After the end: the node ranks of hosts that are lost or have lost their daemons.
  const std::set<int>& lost() const { return lost_; }
  // Returns whether the host's daemon has reported the end of its ranks.
  bool HasEnded(int node_rank) const { return ended_.contains(node_rank); }
  // Returns the killed process that has not ended; "" = none.
  const std::string& unended() const { return unended_; }
  // Returns the last checkpoint that a rank has reported; "" = none.
  const std::string& saved() const { return saved_; }

 private:
  struct Host {
    bool launching = false;  // its launch has no answer, and its ranks may run
    bool launched = false;
    bool gone = false;  // its stream has ended, or it is lost; no more requests are sent
    std::optional<Time> stop_again_at;    // time to repeat a Stop without a response
    std::optional<Time> launch_again_at;  // time to repeat a Launch that a daemon was busy for
    std::deque<int> signals;              // being forwarded, one at a time
  };

  void On(const UserSignal& signal);
  void On(TimePassed) {}
  void On(const ProgramAnswer&) {}
  // Inputs about a host, with its node rank.
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
  // Returns whether the run folder is to blame, and no rank or host.
  bool run_directory_failed() const { return observer_failed_.has_value() && !judge_.failed(); }
  // Returns the outcome without hints about hosts.
  JobOutcome FindCause() const;
  // Returns the file with the last messages of the daemon that the verdict blames; "" = none.
  std::string FindLog(const Verdict& verdict) const;
  void OnStartFailed(int node_rank, const v1::StartFailed& failed);
  // Tells the user once which rank takes long to start.
  void TellOfStart(int node_rank, const v1::Heartbeat& heartbeat);
  void OnGenerationEnded(int node_rank, const v1::GenerationEnded& end);
  // Returns the time of a rank's end; nullopt: another event, or unknown.
  std::optional<TimeRange> FindTime(int node_rank, const v1::Event& event) const;
  void LaunchOn(int node_rank);
  void SendWhatIsDue();
  void SendSignal(int node_rank);
  void ForwardSignal(int signal);
  // Stops the hosts because of a failure, with the grace period that the user's signals allow.
  void StopFailed(double grace_seconds);
  void StopHosts(double grace_seconds);
  void StopHost(int node_rank);
  bool kills_ranks() const { return stop_running_ && stop_running_->grace_seconds == 0; }
  void LetGo(int node_rank);  // sends no more requests to the host
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
  StoppedRanks stopped_ranks_;  // for jobs with ranks that wait for each other
  std::vector<Host> hosts_;     // by node rank
  ValueExchange exchange_;      // for a job on several hosts
  std::set<int> ended_;         // hosts that have reported the end of their ranks
  std::set<int> unprobed_;      // lost hosts; the results of their probes follow
  bool given_up_ = false;
  bool told_of_start_ = false;
  int unanswered_launches_ = 0;
  int open_streams_ = 0;
  std::optional<StopInProgress> stop_running_;
  std::set<int> lost_;
  std::string unended_;
  std::string saved_;
  std::optional<Status> observer_failed_;  // if set, the observer is no longer called
  Time now_{};
};

}  // namespace ds::cli
