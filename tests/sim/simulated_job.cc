#include "tests/sim/simulated_job.h"

#include <algorithm>
#include <csignal>
#include <type_traits>
#include <utility>
#include <variant>

namespace ds::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A job that has not ended by then does not end.
constexpr seconds kLongestJob{900};
// Every lease, grace and pause has passed by then.
constexpr seconds kAftermath{120};
constexpr std::size_t kTraced = 60;

}  // namespace

SimulatedJob::SimulatedJob(const Scenario& scenario, std::uint64_t seed, const Mistakes& mistakes)
    : scenario_(scenario),
      mistakes_(mistakes),
      random_(seed),
      table_(std::in_place, Seconds(scenario.lease_seconds)) {
  for (const int machine : scenario_.down) {
    // Where spares do not suffice no job begins.
    const bool is_covered = static_cast<int>(absent_.size()) < scenario_.spares;
    if (machine < scenario_.hosts && is_covered) absent_.insert(machine);
  }
  for (int number = 0; number < scenario_.hosts; ++number) {
    if (absent_.contains(number)) {
      const std::string host = "h" + std::to_string(number);
      failures_.failures[number] = {
          .cause = cli::Cause::kPreflight, .host = host, .message = "host " + host + " is down"};
    } else {
      StartHost(number, number);
    }
  }
  MakeMachine();
}

void SimulatedJob::MakeMachine() {
  cli::JobMachine::Parts parts{
      .program = this, .observer = this, .stop = &stop_.emplace(), .absent = failures_};
  parts.keep_state = [this](std::optional<v1::JobState> state) { kept_ = std::move(state); };
  parts.keep_moment = [this](const v1::JobMoment& moment) { kept_moment_ = moment; };
  parts.find_clock = [this](int number) { return clocks_.at(number).offset(); };
  parts.draw_key = [] { return std::string("key"); };
  parts.unix_nanos = [this] { return clock_.now().count(); };
  parts.find_own_pause = [this](std::optional<int> number) -> std::optional<cli::OwnPause> {
    if (mistakes_.pauses_go_unnoticed) return std::nullopt;
    return table_->FindOwnPause(clock_.now(), number);
  };
  parts.convert_time = [this](int number, Time boot_time) {
    return ConvertTime(number, boot_time);
  };
  machine_ = std::make_unique<cli::JobMachine>(MakePlan(), std::move(parts));
}

cli::JobPlan SimulatedJob::MakePlan() const {
  std::vector<cli::HostSlots> hosts;
  for (int number = 0; number < scenario_.hosts; ++number) {
    hosts.push_back({.host = "h" + std::to_string(number), .slots = {0, 1}});
  }
  cli::JobPlan plan{.job_id = "job",
                    .flags = {.lease_seconds = scenario_.lease_seconds,
                              .max_restarts = scenario_.max_restarts,
                              .grace_seconds = scenario_.grace_seconds},
                    .world = cli::PlanWorld(hosts),
                    .master_addr = "h0"};
  for (cli::JobHost& host : plan.world.hosts) host.remote = true;
  for (int spare = 0; spare < scenario_.spares; ++spare) {
    plan.spares.push_back(
        {.host = "h" + std::to_string(scenario_.hosts + spare), .slots = {0, 1}, .remote = true});
  }
  return plan;
}

StatusOr<cli::RankProgram> SimulatedJob::ForGeneration(int generation) const {
  return cli::RankProgram{.argv = {"prog", std::to_string(generation)}};
}

std::optional<int> SimulatedJob::FindDaemon(int machine) const {
  std::optional<int> last;
  for (const auto& [number, its_machine] : machines_) {
    if (its_machine == machine) last = number;
  }
  return last;
}

bool SimulatedJob::IsUnreachable(int machine) {
  const bool is_spare = machine >= scenario_.hosts;
  if (scenario_.down.contains(machine) && (is_spare || absent_.contains(machine))) return true;
  const std::optional<int> daemon = FindDaemon(machine);
  if (!daemon.has_value()) return false;
  const Link& link = links_[*daemon];
  return clock_.now() < std::max(link.blocked_down_until, link.blocked_up_until);
}

void SimulatedJob::StartHost(int number, int machine) {
  machines_[number] = machine;
  SimulatedHost::Options options{.lease = Seconds(scenario_.lease_seconds),
                                 .boot_offset = Seconds(Draw(0, 1e6)),
                                 .wall_clock = {},
                                 .clean_up_after = Seconds(Draw(0, 0.99)),
                                 .mistakes = mistakes_,
                                 .live = {},
                                 .on_launch = {},
                                 .on_change = {}};
  options.wall_clock = [this] { return static_cast<std::int64_t>(Draw(0, 1e18)); };
  options.live = [this](int /*rank*/, int generation) { return DrawLife(generation); };
  options.on_launch = [this](int generation) { OnLaunchAt(generation); };
  options.on_change = [this, number] { Pump(number); };
  links_[number];
  clocks_[number];
  hosts_[number] = std::make_unique<SimulatedHost>(&clock_, std::move(options));
  terms_.emplace(number, cli::LeaseTerm(clock_.now()));
  table_->Add(number, clock_.now());
}

RankLife SimulatedJob::DrawLife(int generation) {
  RankLife life{.works_for = Seconds(Draw(5, 120))};
  if (Flip(0.03)) life.exit_code = 1 + generation;
  if (Flip(0.9)) life.ends_after_sigterm = Seconds(Draw(0, 1.5 * scenario_.grace_seconds));
  life.survives_sigkill = scenario_.faults.empty() && Flip(0.02);
  return life;
}

// Never two live generations.
void SimulatedJob::OnLaunchAt(int generation) {
  ending_.generations = std::max(ending_.generations, generation + 1);
  for (const auto& [number, host] : hosts_) {
    for (const SimulatedRank& rank : host->ranks()) {
      if (rank.generation == generation || !host->lives(rank)) continue;
      Violate("generation " + std::to_string(generation) + " begins while rank " +
              std::to_string(rank.number) + " of generation " + std::to_string(rank.generation) +
              " lives on h" + std::to_string(number));
    }
  }
}

Ending SimulatedJob::Run() {
  for (const Fault& fault : scenario_.faults) {
    clock_.At(fault.begin, [this, fault] {
      if (!ended_.has_value()) Inject(fault);
    });
  }
  Perform(machine_->Begin());
  Look();
  clock_.RunUntil(kLongestJob, [this] { return ended_.has_value(); });
  if (!ended_.has_value()) {
    Violate("the job does not end");
  } else {
    if (has_agent_) ending_.outcome = machine_->outcome();
    CheckVerdict();
    if (has_agent_) {
      for (const int number : table_->present()) Renew(number, /*release=*/true);
    }
    clock_.RunUntil(*ended_ + kAftermath, [] { return false; });
    CheckNothingLives();
  }
  for (const std::string& line : trace_) ending_.trace += line + "\n";
  return ending_;
}

void SimulatedJob::OnNotice(const std::string& text) {
  Trace(text);
  const auto says = [&](const char* what) { return text.find(what) != std::string::npos; };
  ending_.fenced = ending_.fenced || says("before the restart");
  ending_.spared = ending_.spared || (says("replaces host") && ending_.generations == 0);
  ending_.returned = ending_.returned || says("a new daemon runs on host");
}

void SimulatedJob::Trace(const std::string& what) {
  trace_.push_back(std::to_string(static_cast<double>(clock_.now().count()) / 1e9) + " " + what);
  if (trace_.size() > kTraced) trace_.pop_front();
}

bool SimulatedJob::Flip(double probability) { return Draw(0, 1) < probability; }

// Not by std::uniform_real_distribution, whose numbers are each library's own.
double SimulatedJob::Draw(double low, double high) {
  return low + (high - low) * (static_cast<double>(random_() >> 11) * 0x1.0p-53);
}

void SimulatedJob::After(Time wait, std::function<void()> what) {
  clock_.After(wait, [this, agent = agent_, what = std::move(what)] {
    if (agent == agent_) what();
  });
}

void SimulatedJob::KillAgent() {
  if (!has_agent_ || machine_->ended()) return;
  Trace("the agent is killed");
  ++agent_;
  has_agent_ = false;
  waiting_.clear();
  for (auto& [number, link] : links_) {
    for (const auto& call : std::exchange(link.calls, {})) call->done = nullptr;
    link.watched = -1;
  }
  if (kept_.has_value()) return clock_.After(Seconds(Draw(0.01, 1)), [this] { TakeOver(); });
  // Its guardian says so, and leases end the ranks.
  ending_.outcome = cli::Verdict{.cause = cli::Cause::kInternal, .message = "the agent is gone"};
  ended_ = clock_.now();
}

// As in cli/agent/agent.cc.
void SimulatedJob::TakeOver() {
  ending_.taken_over = true;
  has_agent_ = true;
  v1::JobState state = *kept_;
  *state.mutable_moment() = kept_moment_;
  table_.emplace(Seconds(scenario_.lease_seconds));
  for (const v1::HostPlace& place : state.places()) {
    links_[place.number()].abandoned = false;
    table_->Add(place.number(), clock_.now());
    terms_.erase(place.number());
    terms_.emplace(place.number(), cli::LeaseTerm(clock_.now()));
    clocks_[place.number()] = {};
  }
  for (const v1::ClockState& clock : state.moment().clocks()) {
    clocks_[clock.number()].Restore(cli::ReadClock(clock));
  }
  MakeMachine();
  const auto stop = cli::ReadStop(state);
  stop_->Enter(stop.has_value() && !stop->is_of_user ? cli::JobPhase::kStopping
                                                     : cli::JobPhase::kRunning);
  for (int i = 0; i < user_signals_; ++i) static_cast<void>(stop_->OnSignal(SIGINT));
  Perform(machine_->Resume(state));
  if (user_signals_ > 0) Feed(cli::UserSignal{SIGINT});
  Look();
}

void SimulatedJob::AtDsrun(std::function<void()> what) {
  if (!has_agent_) return;
  if (paused_) {
    waiting_.push_back(std::move(what));
  } else {
    what();
  }
}

void SimulatedJob::Feed(cli::JobInput input) {
  AtDsrun([this, input = std::move(input)] {
    if (!machine_->ended()) Perform(machine_->Handle(input, clock_.now()));
  });
}

void SimulatedJob::Perform(const cli::JobActions& actions) {
  for (const cli::JobAction& action : actions) {
    std::visit([&](const auto& what) { Do(action, what); }, action.what);
  }
  if (machine_->ended()) {
    if (!ended_.has_value()) ended_ = clock_.now();
    return;
  }
  ScheduleMachine();
}

void SimulatedJob::ScheduleMachine() {
  const auto next = machine_->next();
  if (!next.has_value()) return;
  clock_.At(*next, [this] {
    AtDsrun([this] {
      const auto due = machine_->next();
      if (machine_->ended() || !due.has_value() || *due > clock_.now()) return;
      Perform(machine_->Handle(cli::TimePassed(), clock_.now()));
    });
  });
}

template <typename Response>
void SimulatedJob::CallHost(const cli::JobAction& action, std::function<Status()> serve,
                            std::shared_ptr<Response> response) {
  constexpr bool kIsStop = std::is_same_v<Response, v1::StopResponse>;
  constexpr bool kIsStart =
      std::is_same_v<Response, v1::PrepareResponse> || std::is_same_v<Response, v1::LaunchResponse>;
  Call(action.host, kIsStart ? seconds(30) : seconds(5), kIsStart, std::move(serve),
       [this, host = action.host, generation = action.generation, response](const Status& status) {
         const bool lost = kIsStop && cli::NobodyAnswered(status);
         cli::Answer<Response> answer{host, generation, *response};
         if (!status.ok() && !(lost && mistakes_.lost_stops_count)) answer.answer = status;
         Feed(std::move(answer));
       });
}

void SimulatedJob::Do(const cli::JobAction& action, const v1::PrepareRequest& /*request*/) {
  const auto response = std::make_shared<v1::PrepareResponse>();
  if (scenario_.refusing.contains(machines_.at(action.host))) {
    v1::Finding* const finding = response->add_findings();
    finding->set_level(v1::Finding::FAIL);
    finding->set_message("it refuses the job");
  }
  response->set_core_count(4);
  const auto serve = [this, response] {
    response->set_master_port(next_port_++);
    return OkStatus();
  };
  CallHost(action, serve, response);
}

void SimulatedJob::Do(const cli::JobAction& action, const v1::LaunchRequest& request) {
  CallHost<v1::LaunchResponse>(
      action, [host = hosts_[action.host].get(), request] { return host->Launch(request); });
}

void SimulatedJob::Do(const cli::JobAction& action, const v1::StopRequest& request) {
  if (stopped_.insert(action.generation).second) ExpectEndOf(action.generation);
  CallHost<v1::StopResponse>(
      action, [host = hosts_[action.host].get(), request] { return host->Stop(request); });
}

void SimulatedJob::Do(const cli::JobAction& action, const v1::SignalRequest& /*request*/) {
  CallHost<v1::SignalResponse>(action, [] { return OkStatus(); });
}

void SimulatedJob::Do(const cli::JobAction& action, const v1::ShareRequest& /*request*/) {
  CallHost<v1::ShareResponse>(action, [] { return OkStatus(); });
}

void SimulatedJob::Do(const cli::JobAction& action, const cli::WatchHost&) {
  Watch(action.host, action.generation);
}

void SimulatedJob::Do(const cli::JobAction& action, cli::AbandonHost) { Abandon(action.host); }

void SimulatedJob::Do(const cli::JobAction& action, cli::GiveHostUp) {
  Abandon(action.host);
  Feed(cli::HostGone{action.host, terms_.at(action.host).from()});
}

void SimulatedJob::Do(const cli::JobAction& action, const cli::StartReplacement& start) {
  const int machine = start.replacement.host;
  StatusOr<cli::StartedReplacement> answer =
      cli::StartedReplacement{.master_addr = "h" + std::to_string(machine)};
  if (IsUnreachable(machine)) {
    answer = UnavailableError("no route to host");
  } else {
    StartHost(action.host, machine);
  }
  After(milliseconds(500), [this, number = action.host, answer] {
    Feed(cli::ReplacementAnswer{number, answer});
  });
}

// Now and then the storage has trouble for a while.
void SimulatedJob::Do(const cli::JobAction& action, cli::AskProgram) {
  const StatusOr<cli::RankProgram> program =
      Flip(0.1) ? UnavailableError("Stale file handle") : ForGeneration(action.generation);
  After(Seconds(Draw(0, 10)), [this, program, generation = action.generation] {
    Feed(cli::ProgramAnswer{generation, program});
  });
}

// As LeaseKeeper does it.
void SimulatedJob::Look() {
  for (const int number : table_->TakeDue(clock_.now())) Renew(number, /*release=*/false);
  for (const cli::HostChange& change : table_->TakeChanges(clock_.now(), clock_.now().count())) {
    Feed(change);
    if (change.awaits_probe()) Probe(change);
  }
  if (ended_.has_value()) return;
  const auto clocks = [this] { return cli::OwnPauses::Clocks{clock_.now(), clock_.now()}; };
  table_->BeginWait(clocks());
  After(table_->look_interval(), [this, clocks] {
    AtDsrun([this, clocks] {
      table_->EndWait(clocks());
      Look();
    });
  });
}

std::optional<cli::TimeRange> SimulatedJob::ConvertTime(int number, Time boot_time) const {
  if (mistakes_.first_by_arrival) return std::nullopt;
  return clocks_.at(number).Convert(boot_time, clock_.now());
}

void SimulatedJob::Probe(cli::HostChange lost) {
  lost.before = lost.grade;
  lost.probe = {hosts_[lost.host]->has_daemon() ? cli::Reachability::kListening
                                                : cli::Reachability::kUnreachable,
                "probed"};
  After(Seconds(Draw(0, 2)), [this, lost] { Feed(lost); });
}

void SimulatedJob::Renew(int number, bool release) {
  const auto boot = std::make_shared<std::uint64_t>(0);
  Call(
      number, Seconds(scenario_.lease_seconds) / 2, /*is_start=*/false,
      [host = hosts_[number].get(), answered = terms_.at(number).answered(), boot, release] {
        *boot = static_cast<std::uint64_t>(host->boot_time().count());
        return host->Renew(answered, release);
      },
      [this, number, boot, sent = clock_.now()](const Status& status) {
        AtDsrun([this, number, boot, sent, status] {
          if (status.ok()) {
            terms_.at(number).OnAnswer(*boot, clock_.now());
            clocks_[number].OnAnswer(sent, Time(static_cast<std::int64_t>(*boot)), clock_.now());
          }
          table_->OnRenewed(number, status, clock_.now());
        });
      });
}

void SimulatedJob::Abandon(int number) {
  Link& link = links_[number];
  link.abandoned = true;
  terms_.at(number).GiveUp();
  for (const auto& call : std::exchange(link.calls, {})) {
    clock_.After(Time(0), [this, call] { Finish(call, CancelledError("given up")); });
  }
  if (link.watched >= 0) EndStream(number, CancelledError("given up"));
}

void SimulatedJob::CheckNothingLives() {
  for (const auto& [number, host] : hosts_) {
    for (const SimulatedRank& rank : host->ranks()) {
      if (!host->lives(rank) || rank.life.survives_sigkill) continue;
      Violate("rank " + std::to_string(rank.number) + " of generation " +
              std::to_string(rank.generation) + " never ends on h" + std::to_string(number));
    }
  }
}

Ending Play(const Scenario& scenario, std::uint64_t seed, const Mistakes& mistakes) {
  return SimulatedJob(scenario, seed, mistakes).Run();
}

}  // namespace ds::sim
