#pragma once

// GenerationRun: one generation of ranks on all hosts, from Launch to the end of the last event
// stream.
//
// The first failure anywhere, a lost daemon, an observer's error or the user (user_stop.h) stops
// every rank everywhere. SIGUSR1 and SIGUSR2 go on to every rank.
//
// Threads: Run() on one thread, plus one per host inside it that only moves events into `inputs`.

#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cli/host/host_daemon.h"
#include "cli/host/host_liveness.h"
#include "cli/host/lease_keeper.h"
#include "cli/job/bounded_queue.h"
#include "cli/job/input_forwarder.h"
#include "cli/job/job_observer.h"
#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/job/user_stop.h"
#include "cli/job/value_exchange.h"
#include "cli/job/verdict/failure_judge.h"
#include "cli/job/verdict/stopped_ranks.h"
#include "cli/job/verdict/verdict.h"

namespace ds::cli {

// One thing that can happen: a signal from the user, a host that is heard from no more or again, an
// event of a host, the end of a host's stream.
struct JobInput {
  int signal = 0;                         // not 0: the user's, and nothing else is set
  std::optional<HostChange> host_change;  // nothing else is set
  std::string notice;                     // not "": nothing else is set
  int node_rank = 0;
  std::optional<v1::Event> event;  // none: the host's stream ended
  Status stream_status;            // with this
};
using JobInputs = BoundedQueue<JobInput>;

struct PreparedHost {
  HostDaemon* daemon = nullptr;
  int number = 0;  // JobPlan::host's, by which the keeper of leases knows it
  v1::PrepareResponse answer;
};
using PreparedHosts = std::vector<PreparedHost>;  // by node rank

// Returns none when the host is not, or no longer, one of the world.
std::optional<int> FindNodeRank(const PreparedHosts& hosts, int number);

// SIGUSR1 and SIGUSR2 mean something to the ranks, not to dsrun.
bool IsForwarded(int signal);

class GenerationRun {
 public:
  // Channels lead to those with whom the run talks.
  struct Channels {
    JobObserver* observer;
    JobInputs* inputs;
    InputForwarder* standard_input;  // null = rank 0 reads nothing
    UserStop* stop;                  // an input with such a signal says that it has changed
  };
  // Everything given outlives the run.
  GenerationRun(int generation, const JobPlan& job, const PreparedHosts& prepared,
                const Channels& channels);

  JobOutcome Run(const RankProgram& program);

  // Lists afterwards the node ranks of hosts that are gone or whose daemons are.
  const std::set<int>& lost() const { return lost_; }
  // Tells whether the ranks of this host have ended, by its daemon's own word.
  bool HasEnded(int node_rank) const { return ended_.contains(node_rank); }
  // Says which process has not ended although it was killed; "" = none.
  const std::string& unended() const { return unended_; }

 private:
  using LaunchAnswer = std::future<StatusOr<v1::LaunchResponse>>;
  // A thread for every host awaits the launch of its ranks and then moves its events into inputs_.
  // Returns once all have answered; failures of it are judge_'s to know.
  std::vector<std::jthread> LaunchHosts(const RankProgram& program);
  std::future<Status> LaunchHost(int node_rank, const RankProgram& program,
                                 std::vector<std::jthread>* hosts);
  LaunchAnswer BeginLaunch(int node_rank, const RankProgram& program);
  void WatchHost(int node_rank);
  // The first rank to standard input, all to each other. Where it fails judge_ knows.
  void ConnectRanks();
  Status ForwardInput();  // from ConnectRanks on
  Status ShareValues(int node_rank, const std::vector<v1::SharedValue>& values);
  // Returns when no host that was launched has more to say.
  void HandleInputs();
  void HandleInput(const JobInput& input);
  // Sends what the user wants and was not sent.
  void HandleUserStop();
  void HandleHostChange(const HostChange& change);
  void HandleStreamEnd(const JobInput& input);
  void ForwardSignal(int signal);
  void HandleEvent(const JobInput& input);
  // For what has failed; then by what the user wants.
  void StopFailed(double grace_seconds);
  // Does not wait for answers: those of one host must not keep the others' events waiting.
  void StopHosts(double grace_seconds);
  // Repeats the request until it is answered, or there is nobody left to answer.
  void StopHost(int node_rank, const v1::StopRequest& request);
  // The same for those that got no thread of their own, once at a time.
  void RepeatStops();
  // Says as well where ranks may live on: on hosts, other than the one the verdict is about, that
  // were given up before they told of their ranks' end.
  JobOutcome Conclude() const;
  void GiveUpHosts();              // other hosts are not waited for any more
  void ForgetHost(int node_rank);  // nothing more comes from it
  const std::string& host_name(int node_rank) const { return job_.world.hosts[node_rank].host; }

  const int generation_;
  const JobPlan& job_;
  const PreparedHosts& prepared_;
  JobObserver* const observer_;
  JobInputs* const inputs_;
  InputForwarder* const standard_input_;
  UserStop* const stop_;

  FailureJudge judge_;
  std::optional<StoppedRanks> stopped_ranks_;  // of a job whose ranks wait for each other
  std::vector<int> launched_;                  // node ranks
  std::set<int> ended_;                        // of these: whose ranks have ended, as they told
  std::mutex gone_mutex_;
  std::condition_variable gone_changed_;
  std::set<int> gone_;  // guarded by gone_mutex_: node ranks whose stream has ended, and lost ones
  std::size_t open_streams_ = 0;
  bool stopping_ = false;                            // a Stop was sent
  bool killing_ = false;                             // one without grace
  std::map<int, v1::StopRequest> unanswered_stops_;  // by node rank: for which there is no thread
  std::set<int> lost_;
  std::string unended_;
  std::optional<Status> observer_failed_;  // it is not called any more
  // The last that was sent, by node rank. They stand behind what their threads use, so that it goes
  // first.
  std::map<int, std::shared_future<void>> stops_;
  std::map<int, std::shared_future<void>> forwards_;  // of signals, the latest by host
  std::optional<ValueExchange> exchange_;             // of a job on several hosts
};

}  // namespace ds::cli
