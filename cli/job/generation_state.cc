#include "cli/job/generation_state.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "cli/host/host_daemon.h"
#include "cli/job/verdict/make_verdict.h"
#include "cli/job/wire_requests.h"

namespace ds::cli {
namespace {

// A Stop that did not get through is sent again: until the host is lost its lease is being renewed.
constexpr std::chrono::milliseconds kAskAgainAfter{200};

// The daemon stopped its ranks for a reason of its own, and ends.
bool EndsItsDaemon(v1::StopCause cause) {
  return cause == v1::STOP_LEASE_EXPIRED || cause == v1::STOP_CONTROLLER_GONE ||
         cause == v1::STOP_DAEMON_SIGNALLED;
}

}  // namespace

std::optional<int> FindNodeRank(const PreparedHosts& hosts, int number) {
  const auto found = std::find_if(hosts.begin(), hosts.end(),
                                  [&](const PreparedHost& host) { return host.number == number; });
  if (found == hosts.end()) return std::nullopt;
  return static_cast<int>(found - hosts.begin());
}

bool IsForwarded(int signal) { return signal == SIGUSR1 || signal == SIGUSR2; }

GenerationState::GenerationState(const Parts& parts)
    : parts_(parts),
      job_(*parts.job),
      judge_(parts.number),
      stopped_ranks_(parts.timeout),
      hosts_(parts.hosts->size()),
      exchange_(parts.rank_key),
      stop_running_(parts.stop_in_progress) {
  if (!parts.stop_cause.ok()) judge_.OnEarlierVerdict(parts.stop_cause.failure());
}

template <typename Request>
Request GenerationState::MakeRequest() const {
  Request request;
  request.set_job_id(job_.job_id);
  request.set_generation(parts_.number);
  return request;
}

template <typename Action>
void GenerationState::Act(int node_rank, Action what) {
  parts_.actions->push_back({.host = (*parts_.hosts)[node_rank].number,
                             .generation = parts_.number,
                             .what = std::move(what)});
}

void GenerationState::Begin() {
  const bool stops = stop_running_ && !stop_running_->is_of_user;
  parts_.stop->Enter(stops ? JobPhase::kStopping : JobPhase::kLaunching);
  for (int node_rank = 0; node_rank < static_cast<int>(parts_.hosts->size()); ++node_rank) {
    LaunchOn(node_rank);
    ++unanswered_launches_;
  }
}

void GenerationState::LaunchOn(int node_rank) {
  const PreparedHosts& hosts = *parts_.hosts;
  hosts_[node_rank].launch_again_at.reset();
  hosts_[node_rank].launching = true;
  Act(node_rank,
      MakeLaunchRequest(job_, *parts_.program,
                        {.node_rank = node_rank,
                         .generation = parts_.number,
                         .master_port = static_cast<int>(hosts.front().answer->master_port()),
                         .core_count = static_cast<int>(hosts[node_rank].answer->core_count()),
                         .forward_input = parts_.has_input && node_rank == 0}));
}

void GenerationState::Handle(const JobInput& input, Time now) {
  now_ = now;
  std::visit(
      [&](const auto& each) {
        if constexpr (requires { each.generation; }) {
          if (each.generation != parts_.number) return;  // of an earlier one, and late
        }
        if constexpr (requires { each.host; }) {
          const std::optional<int> node_rank = FindNodeRank(*parts_.hosts, each.host);
          if (node_rank.has_value()) On(each, *node_rank);
        } else {
          On(each);
        }
      },
      input);
  if (judge_.failed() && !stop_running_) StopFailed(job_.flags.grace_seconds);
  SendWhatIsDue();
  if (ended() && parts_.has_input) Act(0, EndInput());
}

std::optional<GenerationState::Time> GenerationState::next() const {
  std::optional<Time> next = exchange_.next();
  for (const Host& host : hosts_) {
    for (const std::optional<Time>& at : {host.stop_again_at, host.launch_again_at}) {
      if (at.has_value()) next = std::min(next.value_or(*at), *at);
    }
  }
  return next;
}

std::optional<v1::StopState> GenerationState::DescribeStop() const {
  if (!stop_running_) return std::nullopt;
  // Without hints: hosts that have not ended yet are no news, and the end adds them.
  return MakeStopState(*stop_running_, stop_running_->is_of_user ? JobOutcome() : FindCause());
}

JobOutcome GenerationState::FindCause() const {
  if (run_directory_failed()) {
    return MakeRunDirectoryVerdict(*observer_failed_, parts_.number);
  }
  return judge_.Conclude();
}

JobOutcome GenerationState::Conclude() const {
  const JobOutcome outcome = FindCause();
  if (outcome.ok() || run_directory_failed()) return outcome;
  Verdict verdict = outcome.failure();
  if (!unended_.empty()) AddHint(unended_, &verdict);
  if (const std::string path = FindLog(verdict); !path.empty()) {
    AddHint("its daemon leaves its last messages there in " + path, &verdict);
  }
  for (const int node_rank : launched()) {
    const JobHost& host = job_.world.hosts[node_rank];
    // This machine's daemons are waited for, whatever they say.
    if (!host.remote || ended_.contains(node_rank) || host.host == verdict.host) continue;
    AddHint("host " + host.host +
                " did not confirm that its ranks have ended: look there for dsrund --job=" +
                job_.job_id + ", which ends them when it resumes",
            &verdict);
  }
  return verdict;
}

std::string GenerationState::FindLog(const Verdict& verdict) const {
  if (verdict.cause != Cause::kHostLost && verdict.cause != Cause::kDaemonLost) return "";
  for (std::size_t i = 0; i < parts_.hosts->size(); ++i) {
    const auto& answer = (*parts_.hosts)[i].answer;
    if (answer.ok() && host_name(static_cast<int>(i)) == verdict.host) return answer->log_path();
  }
  return "";
}

void GenerationState::On(const Answer<v1::LaunchResponse>& answer, int node_rank) {
  const StatusCode code = answer.answer.status().code();
  if (parts_.is_taken_over && code == StatusCode::kFailedPrecondition) {
    // The earlier launch is still in progress there.
    hosts_[node_rank].launch_again_at = now_ + kAskAgainAfter;
    return;
  }
  --unanswered_launches_;
  // Without an answer its ranks may run all the same, and are stopped.
  hosts_[node_rank].launching = NobodyAnswered(answer.answer.status());
  // A user who kills the ranks cancels launches.
  const bool runs_already = parts_.is_taken_over &&
                            (code == StatusCode::kAlreadyExists || code == StatusCode::kCancelled);
  if (answer.answer.ok() || runs_already) {
    hosts_[node_rank].launched = true;
    ++open_streams_;
    Act(node_rank, WatchHost{.again = parts_.is_taken_over});
    if (stop_running_) StopHost(node_rank);
  } else {
    // Who cancels a launch is to blame, and not the host that has not answered.
    if (parts_.stop->is_to_blame()) judge_.OnUserStop(parts_.stop->signal());
    judge_.OnLaunchFailed(host_name(node_rank), answer.answer.status());
    if (hosts_[node_rank].launching) lost_.insert(node_rank);
    if (!kills_ranks()) {
      StopFailed(0);
    } else if (hosts_[node_rank].launching) {
      StopHost(node_rank);
    }
  }
  if (unanswered_launches_ > 0 || judge_.failed() || stop_running_) return;
  parts_.stop->Enter(JobPhase::kRunning);
  if (parts_.has_input) Act(0, ForwardInput());
  if (hosts_.size() > 1) exchange_.Connect(launched());
}

void GenerationState::On(const Answer<v1::StopResponse>& answer, int node_rank) {
  Host& host = hosts_[node_rank];
  if (host.gone || answer.answer.ok() || answer.answer.status().code() == StatusCode::kNotFound)
    return;
  host.stop_again_at = now_ + kAskAgainAfter;
}

void GenerationState::On(const Answer<v1::SignalResponse>& /*answer*/, int node_rank) {
  std::deque<int>& signals = hosts_[node_rank].signals;
  signals.pop_front();
  if (!signals.empty()) SendSignal(node_rank);
}

void GenerationState::On(const Answer<v1::ShareResponse>& answer, int node_rank) {
  if (exchange_.OnAnswer(node_rank, answer.answer.status(), now_)) return;
  if (answer.answer.status().code() == StatusCode::kNotFound) return;  // its generation has ended
  parts_.observer->OnNotice(
      host_name(node_rank) +
      " rejected the rendezvous values for its ranks: " + answer.answer.status().message());
}

std::vector<int> GenerationState::launched() const {
  std::vector<int> node_ranks;
  for (int node_rank = 0; node_rank < static_cast<int>(hosts_.size()); ++node_rank) {
    if (hosts_[node_rank].launched) node_ranks.push_back(node_rank);
  }
  return node_ranks;
}

void GenerationState::SendWhatIsDue() {
  for (int node_rank = 0; node_rank < static_cast<int>(hosts_.size()); ++node_rank) {
    const std::optional<Time>& stop_at = hosts_[node_rank].stop_again_at;
    if (stop_at && *stop_at <= now_) StopHost(node_rank);
    const std::optional<Time>& launch_at = hosts_[node_rank].launch_again_at;
    if (launch_at && *launch_at <= now_) LaunchOn(node_rank);
  }
  for (const ValueExchange::Parcel& parcel : exchange_.TakeDue(now_)) {
    auto request = MakeRequest<v1::ShareRequest>();
    request.mutable_values()->Assign(parcel.values.begin(), parcel.values.end());
    Act(parcel.host, std::move(request));
  }
}

void GenerationState::On(const UserSignal& signal) {
  if (IsForwarded(signal.number)) return ForwardSignal(signal.number);
  const UserStop& stop = *parts_.stop;
  if (stop.is_to_blame()) judge_.OnUserStop(stop.signal());
  if (!stop_running_) StopHosts(job_.flags.grace_seconds);
  if (stop.kills_ranks() && !kills_ranks()) StopHosts(0);
  if (stop.kills_daemons()) GiveUpHosts();
}

// Nobody waits for a host that is slow, and one that is gone shows otherwise.
void GenerationState::ForwardSignal(int signal) {
  for (const int node_rank : launched()) {
    hosts_[node_rank].signals.push_back(signal);
    if (hosts_[node_rank].signals.size() == 1) SendSignal(node_rank);
  }
}

void GenerationState::SendSignal(int node_rank) {
  auto request = MakeRequest<v1::SignalRequest>();
  request.set_signal(hosts_[node_rank].signals.front());
  Act(node_rank, std::move(request));
}

void GenerationState::GiveUpHosts() {
  given_up_ = true;
  for (const int node_rank : launched()) {
    LetGo(node_rank);
    Act(node_rank, AbandonHost());
  }
}

void GenerationState::LetGo(int node_rank) {
  hosts_[node_rank].gone = true;
  hosts_[node_rank].stop_again_at.reset();
  exchange_.Disconnect(node_rank);  // what is still on its way ends, which is no refusal
}

void GenerationState::On(const HostChange& change, int node_rank) {
  const std::string host = "host " + host_name(node_rank);
  if (change.grade == HostGrade::kAlive && change.before == HostGrade::kSuspect) {
    parts_.observer->OnNotice(host + " is responding again");
  }
  if (change.grade == HostGrade::kSuspect) {
    parts_.observer->OnNotice(host + " does not respond; " + change.evidence);
  }
  if (change.grade != HostGrade::kLost) return;
  judge_.OnHostLost(host_name(node_rank), change);
  if (change.before == HostGrade::kLost) {
    unprobed_.erase(node_rank);
    return;
  }
  if (change.awaits_probe()) unprobed_.insert(node_rank);
  lost_.insert(node_rank);
  LetGo(node_rank);
  Act(node_rank, AbandonHost());
}

void GenerationState::On(const StreamEnd& end, int node_rank) {
  --open_streams_;
  LetGo(node_rank);
  if (end.status.ok()) return;
  lost_.insert(node_rank);
  // Nobody is to look for who killed it where it was dsrun.
  if (parts_.stop->kills_daemons()) return;
  judge_.OnDaemonLost(host_name(node_rank), end.status.message());
}

void GenerationState::On(const HostEvents& events, int node_rank) {
  for (const v1::Event& event : events.batch->events()) OnEvent(node_rank, event, events.batch);
}

void GenerationState::OnEvent(int node_rank, const v1::Event& event,
                              const std::shared_ptr<const v1::EventBatch>& batch) {
  if (event.rank_report().has_put()) {  // said to the other ranks, not to the user
    exchange_.Add(event.rank_report().put());
    return;
  }
  if (event.rank_report().has_checkpoint()) saved_ = event.rank_report().checkpoint().path();
  const std::string& host = host_name(node_rank);
  judge_.OnEvent(host, event, FindTime(node_rank, event));
  if (event.has_start_failed()) OnStartFailed(node_rank, event.start_failed());
  if (event.has_heartbeat()) TellOfStart(node_rank, event.heartbeat());
  if (job_.purpose.built_in) {
    if (const auto stalled = stopped_ranks_.OnEvent(host, event)) judge_.OnStall(*stalled);
  }
  if (event.has_generation_ended()) OnGenerationEnded(node_rank, event.generation_ended());
  if (observer_failed_.has_value()) return;
  const Status status = parts_.observer->OnEvent({host, parts_.number, event, batch});
  if (status.ok()) return;
  observer_failed_ = status;
  StopFailed(job_.flags.grace_seconds);
}

std::optional<TimeRange> GenerationState::FindTime(int node_rank, const v1::Event& event) const {
  const std::chrono::nanoseconds boot_time(event.rank_exited().boot_nanos());
  if (boot_time == boot_time.zero()) return std::nullopt;
  return parts_.convert_time((*parts_.hosts)[node_rank].number, boot_time);
}

void GenerationState::OnStartFailed(int node_rank, const v1::StartFailed& failed) {
  judge_.OnLaunchFailed(host_name(node_rank),
                        Status(static_cast<StatusCode>(failed.code()), failed.message()));
  if (!kills_ranks()) StopFailed(0);  // as if no rank had started
}

// Once: a slow file server serves all hosts.
void GenerationState::TellOfStart(int node_rank, const v1::Heartbeat& heartbeat) {
  if (told_of_start_ || heartbeat.starting().empty()) return;
  const v1::StartingRank& first = heartbeat.starting(0);
  const std::chrono::duration<double> age(first.seconds());
  if (age < parts_.timeout) return;
  told_of_start_ = true;
  std::string text = "host " + host_name(node_rank) + " starts slowly: rank " +
                     std::to_string(first.rank()) + ": " + first.doing() + " for " +
                     std::to_string(static_cast<int>(age.count())) + " s";
  const int others = heartbeat.starting_size() - 1;
  if (others > 0)
    text += ", and " + std::to_string(others) + (others == 1 ? " other rank" : " other ranks");
  parts_.observer->OnNotice(text);
}

void GenerationState::OnGenerationEnded(int node_rank, const v1::GenerationEnded& end) {
  ended_.insert(node_rank);
  for (const std::string& each : end.unended()) {
    unended_ = "host " + host_name(node_rank) + ": " + each +
               ", was killed and has not ended; it is left to itself";
    parts_.observer->OnNotice(unended_);
  }
  if (EndsItsDaemon(end.stop_cause())) lost_.insert(node_rank);
}

void GenerationState::StopFailed(double grace_seconds) {
  parts_.stop->Enter(JobPhase::kStopping);
  StopHosts(grace_seconds);
}

void GenerationState::StopHosts(double grace_seconds) {
  const StopInProgress stop{.grace_seconds = grace_seconds,
                            .end = now_ + FromSeconds(grace_seconds),
                            .is_of_user = parts_.stop->is_to_blame()};
  if (!stop_running_) stop_running_ = stop;
  // Each on its own: a kill after the end of the grace ends later, and counts nevertheless.
  stop_running_->grace_seconds = std::min(stop_running_->grace_seconds, stop.grace_seconds);
  stop_running_->end = std::min(stop_running_->end, stop.end);
  for (int node_rank = 0; node_rank < static_cast<int>(hosts_.size()); ++node_rank) {
    // The answer of a launch may be lost. A daemon that has not launched yet says so, and its host
    // is stopped after the launch.
    if (hosts_[node_rank].launched || hosts_[node_rank].launching) StopHost(node_rank);
  }
}

// It may be one of several on their way, also of an agent that was killed: the shortest grace
// counts. So a grace in progress is not prolonged, and a host that hears late has the full one.
void GenerationState::StopHost(int node_rank) {
  Host& host = hosts_[node_rank];
  host.stop_again_at.reset();
  if (host.gone) return;
  auto request = MakeRequest<v1::StopRequest>();
  request.set_grace_seconds(stop_running_->grace_seconds);
  Act(node_rank, std::move(request));
}

}  // namespace ds::cli
