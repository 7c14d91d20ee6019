#pragma once

// SimulatedJob: one job from its start to its last process, by a seed: hosts (simulated_host.h), a
// network, dsrun and its user. What dsrun decides is decided by the real JobMachine, LeaseTable,
// LeaseTerm and UserStop.
//
// Threads: one.

#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cli/host/host_clock.h"
#include "cli/host/lease_table.h"
#include "cli/host/lease_term.h"
#include "cli/job/job_machine.h"
#include "cli/job/job_moment.h"
#include "cli/job/user_stop.h"
#include "tests/sim/event_clock.h"
#include "tests/sim/scenario.h"
#include "tests/sim/simulated_host.h"

namespace ds::sim {

struct Ending {
  std::vector<std::string> violations;  // of what must always hold; none = all does
  cli::JobOutcome outcome;
  int generations = 0;
  bool fenced = false;      // a restart has waited for ranks that might still run
  bool spared = false;      // a spare has taken part from the start
  bool returned = false;    // a lost host got a new daemon
  bool taken_over = false;  // by another agent
  std::string trace;        // of the last moments, for who looks for the reason
};

// Plays it to its end.
Ending Play(const Scenario& scenario, std::uint64_t seed, const Mistakes& mistakes = {});

class SimulatedJob : public cli::JobObserver, public cli::Program {
 public:
  SimulatedJob(const Scenario& scenario, std::uint64_t seed, const Mistakes& mistakes);
  Ending Run();

 private:
  // An answer, once.
  struct PendingCall {
    std::function<void(const Status&)> done;
    bool is_start = false;
  };
  struct Link {
    std::vector<std::shared_ptr<PendingCall>> calls;
    bool abandoned = false;
    Time blocked_down_until{};  // towards the host
    Time blocked_up_until{};
    Time slow_until{};
    Time flooded_until{};
    // The stream of events of a generation.
    int watched = -1;
    bool broken = false;
    std::size_t sent = 0;
    std::size_t seen = 0;
    Time last_arrival{};
  };

  void OnPrepared(const std::string&, const v1::PrepareResponse&) override {}
  Status OnEvent(const cli::HostEvent&) override { return OkStatus(); }
  void OnNotice(const std::string& text) override;
  StatusOr<cli::RankProgram> ForGeneration(int generation) const override;

  cli::JobPlan MakePlan() const;
  void MakeMachine();
  void StartHost(int number, int machine);
  std::optional<int> FindDaemon(int machine) const;  // the number of the last one
  bool IsUnreachable(int machine);
  RankLife DrawLife(int generation);
  void Inject(const Fault& fault);
  void InjectOnHost(const Fault& fault, int number);
  void FailEverywhere();
  void PauseDsrun(Time length);
  void SendUserSignal();
  // Everything that the agent knows is gone, except the state that it has kept.
  void KillAgent();
  void TakeOver();
  void OnLaunchAt(int generation);

  // dsrun: what comes while it is paused waits, and what comes while it has no agent is lost.
  void AtDsrun(std::function<void()> what);
  void Feed(cli::JobInput input);
  // Calls `what` later, unless another agent has taken over until then.
  void After(Time wait, std::function<void()> what);
  void Perform(const cli::JobActions& actions);
  void Do(const cli::JobAction& action, const v1::PrepareRequest& request);
  void Do(const cli::JobAction& action, const v1::LaunchRequest& request);
  void Do(const cli::JobAction& action, const v1::StopRequest& request);
  void Do(const cli::JobAction& action, const v1::SignalRequest& request);
  void Do(const cli::JobAction& action, const v1::ShareRequest& request);
  void Do(const cli::JobAction& action, const cli::WatchHost& watch);
  void Do(const cli::JobAction& action, cli::AbandonHost);
  void Do(const cli::JobAction& action, cli::GiveHostUp);
  void Do(const cli::JobAction& action, const cli::StartReplacement& start);
  void Do(const cli::JobAction& action, cli::AskProgram);
  void Do(const cli::JobAction&, cli::ForwardInput) { Violate("input that nobody has given"); }
  void Do(const cli::JobAction&, cli::EndInput) { Violate("input that nobody has given"); }
  // Has the host `serve` and, if that is well, dsrun told of the response.
  template <typename Response>
  void CallHost(const cli::JobAction& action, std::function<Status()> serve,
                std::shared_ptr<Response> response = std::make_shared<Response>());
  void ScheduleMachine();
  void Look();
  void Probe(cli::HostChange lost);
  void Renew(int number, bool release);
  void Abandon(int number);

  std::optional<cli::TimeRange> ConvertTime(int number, Time boot_time) const;

  // The network.
  void Call(int number, Time timeout, bool is_start, std::function<Status()> serve,
            std::function<void(const Status&)> done);
  void Finish(const std::shared_ptr<PendingCall>& call, const Status& status);
  void SendDown(int number, bool may_come_twice, const std::function<void()>& arrive);
  void SendUp(int number, std::function<void()> arrive);
  Time DrawDelay(const Link& link);
  void Watch(int number, int generation);
  void Pump(int number);
  void Reconnect(int number);
  void EndStream(int number, const Status& status);

  // It is stopped, and is to end in time, whatever becomes of the request.
  void ExpectEndOf(int generation);
  void RecordExit(int number, int generation, const v1::RankExited& exit);
  void CheckFirst(const cli::Verdict& verdict);
  void CheckVerdict();
  bool IsExplained(const cli::Verdict& verdict) const;
  bool WasInjected(std::initializer_list<FaultKind> kinds, int host) const;
  void CheckNothingLives();
  void Violate(const std::string& what) { ending_.violations.push_back(what); }
  void Trace(const std::string& what);
  bool Flip(double probability);
  double Draw(double low, double high);

  const Scenario scenario_;
  const Mistakes mistakes_;
  std::mt19937_64 random_;
  EventClock clock_;
  std::map<int, std::unique_ptr<SimulatedHost>> hosts_;  // by the number of the daemon
  std::map<int, int> machines_;  // index for JobPlan::host, by number; the last is the current one
  std::map<int, Link> links_;
  std::map<int, cli::LeaseTerm> terms_;
  std::map<int, cli::HostClock> clocks_;
  std::optional<cli::UserStop> stop_;
  int user_signals_ = 0;
  std::optional<cli::LeaseTable> table_;
  cli::AbsentHosts failures_;
  std::unique_ptr<cli::JobMachine> machine_;
  std::optional<v1::JobState> kept_;  // what an agent leaves to its successor
  v1::JobMoment kept_moment_;
  int agent_ = 0;  // number of the agent
  bool has_agent_ = true;
  bool paused_ = false;
  std::deque<std::function<void()>> waiting_;  // for dsrun to go on
  bool starts_cancelled_ = false;
  std::uint32_t next_port_ = 40000;
  std::set<int> absent_;   // hosts that spares replace from the start
  std::set<int> stopped_;  // generations
  // An end of a rank, without a stop, that dsrun knows.
  struct FailedRank {
    int number = 0;
    int generation = 0;
    Time when{};
  };
  std::vector<FailedRank> failed_;  // in the order of their reports
  std::optional<Time> ended_;
  std::deque<std::string> trace_;
  Ending ending_;
};

}  // namespace ds::sim
