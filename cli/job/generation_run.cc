#include "cli/job/generation_run.h"

#include <algorithm>
#include <csignal>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "cli/job/verdict/make_verdict.h"
#include "cli/job/wire_requests.h"
#include "runtime/process/thread_room.h"

namespace ds::cli {
namespace {

// So long without an event, held-back output is shown.
constexpr std::chrono::milliseconds kQuietAfter{50};
constexpr std::chrono::hours kPatience{1};
// A Stop that did not get through is sent again: until the host is lost its lease is being renewed.
constexpr std::chrono::milliseconds kStopAgainAfter{200};

// The daemon stopped its ranks for a reason of its own, and ends.
bool EndsItsDaemon(const v1::Event& event) {
  const v1::StopCause cause = event.generation_ended().stop_cause();
  return cause == v1::STOP_LEASE_EXPIRED || cause == v1::STOP_CONTROLLER_GONE ||
         cause == v1::STOP_DAEMON_SIGNALLED;
}

std::string DescribeUnconfirmed(const std::string& host, const std::string& job_id) {
  return "host " + host +
         " did not confirm that its ranks have ended: look there for dsrund --job=" + job_id +
         ", which ends them when it goes on";
}

Status NoThread(const std::string& to_do_what, const std::system_error& error) {
  return NoRoomError("no thread to " + to_do_what + ": " + error.code().message());
}

}  // namespace

std::optional<int> FindNodeRank(const PreparedHosts& hosts, int number) {
  const auto found = std::find_if(hosts.begin(), hosts.end(),
                                  [&](const PreparedHost& host) { return host.number == number; });
  if (found == hosts.end()) return std::nullopt;
  return static_cast<int>(found - hosts.begin());
}

bool IsForwarded(int signal) { return signal == SIGUSR1 || signal == SIGUSR2; }

GenerationRun::GenerationRun(int generation, const JobPlan& job, const PreparedHosts& prepared,
                             const Channels& channels)
    : generation_(generation),
      job_(job),
      prepared_(prepared),
      observer_(channels.observer),
      inputs_(channels.inputs),
      standard_input_(channels.standard_input),
      stop_(channels.stop),
      judge_(generation) {
  if (job.purpose.built_in) {
    stopped_ranks_.emplace(std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(job.flags.lease_seconds)));
  }
}

JobOutcome GenerationRun::Run(const RankProgram& program) {
  stop_->Enter(JobPhase::kLaunching);
  if (const Status forwarding = ForwardInput(); !forwarding.ok()) {
    judge_.OnLaunchFailed(host_name(0), forwarding.WithContext("rank 0's standard input"));
    return Conclude();
  }
  const std::vector<std::jthread> hosts = LaunchHosts(program);
  stop_->Enter(JobPhase::kRunning);
  if (!judge_.failed()) ConnectRanks();
  if (judge_.failed()) StopFailed(0);
  HandleInputs();
  exchange_.reset();
  if (standard_input_ != nullptr) standard_input_->Stop();
  if (observer_failed_.has_value() && !judge_.failed()) {
    return MakeRunDirectoryVerdict(*observer_failed_, generation_);
  }
  return Conclude();
}

JobOutcome GenerationRun::Conclude() const {
  const JobOutcome outcome = judge_.Conclude();
  if (outcome.ok()) return outcome;
  Verdict verdict = outcome.failure();
  if (!unended_.empty()) verdict.hint += (verdict.hint.empty() ? "" : "; ") + unended_;
  for (const int node_rank : launched_) {
    const JobHost& host = job_.world.hosts[node_rank];
    // This machine's daemons are waited for, whatever they say.
    if (!host.remote || ended_.contains(node_rank) || host.host == verdict.host) continue;
    verdict.hint +=
        (verdict.hint.empty() ? "" : "; ") + DescribeUnconfirmed(host.host, job_.job_id);
  }
  return verdict;
}

void GenerationRun::ConnectRanks() try {
  if (standard_input_ != nullptr) standard_input_->Begin();
  if (launched_.size() < 2) return;
  exchange_.emplace(
      launched_,
      [this](int node_rank, const std::vector<v1::SharedValue>& values) {
        return ShareValues(node_rank, values);
      },
      [this](int node_rank, const Status& why) {
        inputs_->PutUrgent(
            {.notice = host_name(node_rank) +
                       " does not take what its ranks need to meet the others: " + why.message()});
      });
} catch (const std::system_error& error) {
  judge_.OnLaunchFailed(host_name(launched_.front()), NoThread("talk to it", error));
}

GenerationRun::LaunchAnswer GenerationRun::BeginLaunch(int node_rank, const RankProgram& program) {
  const PreparedHost& host = prepared_[node_rank];
  return host.daemon->BeginLaunch(
      MakeLaunchRequest(job_, program,
                        {.node_rank = node_rank,
                         .generation = generation_,
                         .master_port = static_cast<int>(prepared_.front().answer.master_port()),
                         .core_count = static_cast<int>(host.answer.core_count()),
                         .forward_input = standard_input_ != nullptr && node_rank == 0}));
}

void GenerationRun::WatchHost(int node_rank) {
  const Status status = prepared_[node_rank].daemon->Watch(
      generation_,
      [&](const v1::Event& event) { inputs_->Put({.node_rank = node_rank, .event = event}); });
  inputs_->Put({.node_rank = node_rank, .stream_status = status});
}

std::future<Status> GenerationRun::LaunchHost(int node_rank, const RankProgram& program,
                                              std::vector<std::jthread>* hosts) {
  std::promise<LaunchAnswer> begun;
  std::promise<Status> answer;
  std::future<Status> launched = answer.get_future();
  try {
    hosts->emplace_back(
        [this, node_rank, begun = begun.get_future(), answer = std::move(answer)]() mutable {
          const Status status = begun.get().get().status();
          answer.set_value(status);
          if (status.ok()) WatchHost(node_rank);
        });
  } catch (const std::system_error& error) {
    std::promise<Status> refusal;
    refusal.set_value(NoThread("watch it", error));
    return refusal.get_future();
  }
  // Not before: of ranks that nobody watches nobody would know when they have ended.
  begun.set_value(BeginLaunch(node_rank, program));
  return launched;
}

std::vector<std::jthread> GenerationRun::LaunchHosts(const RankProgram& program) {
  std::vector<std::jthread> hosts;
  std::vector<std::future<Status>> answers;
  for (int node_rank = 0; node_rank < static_cast<int>(prepared_.size()); ++node_rank) {
    answers.push_back(LaunchHost(node_rank, program, &hosts));
  }
  for (int node_rank = 0; node_rank < static_cast<int>(answers.size()); ++node_rank) {
    const Status answer = answers[node_rank].get();
    if (answer.ok()) {
      launched_.push_back(node_rank);
    } else {
      // Who cancels a launch is to blame, and not the host that has not answered.
      if (stop_->is_to_blame()) judge_.OnUserStop(stop_->signal());
      judge_.OnLaunchFailed(host_name(node_rank), answer);
      if (NobodyAnswered(answer)) lost_.insert(node_rank);
    }
  }
  return hosts;
}

Status GenerationRun::ForwardInput() {
  if (standard_input_ == nullptr) return OkStatus();
  HostDaemon* const daemon = prepared_.front().daemon;
  return standard_input_->Start(
      [this, daemon](const InputForwarder::Chunk& chunk) -> StatusOr<std::uint64_t> {
        v1::InputRequest request;
        request.set_job_id(job_.job_id);
        request.set_generation(generation_);
        request.set_offset(chunk.offset);
        request.set_data(chunk.data);
        request.set_end(chunk.end);
        DS_ASSIGN_OR_RETURN(const v1::InputResponse response, daemon->Input(request));
        return response.accepted();
      });
}

Status GenerationRun::ShareValues(int node_rank, const std::vector<v1::SharedValue>& values) {
  v1::ShareRequest request;
  request.set_job_id(job_.job_id);
  request.set_generation(generation_);
  request.mutable_values()->Assign(values.begin(), values.end());
  return prepared_[node_rank].daemon->Share(request).status();
}

void GenerationRun::HandleInputs() {
  open_streams_ = launched_.size();
  std::chrono::milliseconds patience = kQuietAfter;
  auto next_repeat = std::chrono::steady_clock::now();
  while (open_streams_ > 0) {
    const std::optional<JobInput> input =
        inputs_->Take(unanswered_stops_.empty() ? patience : kStopAgainAfter);
    patience = input.has_value() ? kQuietAfter : kPatience;
    if (input.has_value()) {
      HandleInput(*input);
    } else {
      observer_->OnQuiet();
    }
    // Not after each input: a host that does not answer would hold up every one for a call's time.
    if (std::chrono::steady_clock::now() < next_repeat) continue;
    RepeatStops();
    next_repeat = std::chrono::steady_clock::now() + kStopAgainAfter;
  }
}

void GenerationRun::HandleInput(const JobInput& input) {
  if (IsForwarded(input.signal)) return ForwardSignal(input.signal);
  if (input.signal != 0) return HandleUserStop();
  if (!input.notice.empty()) return observer_->OnNotice(input.notice);
  if (input.host_change.has_value()) {
    HandleHostChange(*input.host_change);
  } else if (input.event.has_value()) {
    HandleEvent(input);
  } else {
    HandleStreamEnd(input);
  }
  if (judge_.failed() && !stopping_) StopFailed(job_.flags.grace_seconds);
}

void GenerationRun::ForwardSignal(int signal) {
  v1::SignalRequest request;
  request.set_job_id(job_.job_id);
  request.set_generation(generation_);
  request.set_signal(signal);
  // As with a stop: nobody waits for a host that is slow, and one that is gone shows otherwise.
  for (const int node_rank : launched_) {
    HostDaemon* const daemon = prepared_[node_rank].daemon;
    const std::shared_future<void> earlier = forwards_[node_rank];
    try {
      forwards_[node_rank] = std::async(std::launch::async, [daemon, earlier, request] {
                               if (earlier.valid()) earlier.wait();
                               static_cast<void>(daemon->Signal(request));
                             }).share();
    } catch (const std::system_error&) {  // no thread is to be had
      static_cast<void>(daemon->Signal(request));
    }
  }
}

void GenerationRun::HandleUserStop() {
  if (stop_->is_to_blame()) judge_.OnUserStop(stop_->signal());
  if (!stopping_) StopHosts(job_.flags.grace_seconds);
  if (stop_->kills_ranks() && !killing_) StopHosts(0);
  if (stop_->kills_daemons()) GiveUpHosts();
}

// This machine's daemons are killed meanwhile, which ends their streams.
void GenerationRun::GiveUpHosts() {
  for (const int node_rank : launched_) {
    if (!job_.world.hosts[node_rank].remote) continue;
    ForgetHost(node_rank);
    prepared_[node_rank].daemon->Abandon();
  }
}

void GenerationRun::HandleHostChange(const HostChange& change) {
  const std::optional<int> node_rank = FindNodeRank(prepared_, change.host);
  if (!node_rank.has_value()) return;
  const std::string& host = host_name(*node_rank);
  switch (change.grade) {
    case HostGrade::kLate:
      break;
    case HostGrade::kAlive:
      if (change.before == HostGrade::kSuspect) {
        observer_->OnNotice("host " + host + " is heard from again");
      }
      break;
    case HostGrade::kSuspect:
      observer_->OnNotice("host " + host + " is not heard from; " + change.evidence);
      break;
    case HostGrade::kLost:
      judge_.OnHostLost(host, change);
      lost_.insert(*node_rank);
      ForgetHost(*node_rank);
      prepared_[*node_rank].daemon->Abandon();
      break;
  }
}

void GenerationRun::HandleStreamEnd(const JobInput& input) {
  --open_streams_;
  ForgetHost(input.node_rank);
  if (input.stream_status.ok()) return;
  lost_.insert(input.node_rank);
  const JobHost& host = job_.world.hosts[input.node_rank];
  // Nobody is to look for who killed it where it was dsrun.
  if (stop_->kills_daemons()) return;
  judge_.OnDaemonLost(host.host, input.stream_status.message());
}

void GenerationRun::ForgetHost(int node_rank) {
  const std::lock_guard lock(gone_mutex_);
  gone_.insert(node_rank);
  gone_changed_.notify_all();
}

void GenerationRun::HandleEvent(const JobInput& input) {
  if (input.event->rank_report().has_put()) {  // said to the other ranks, not to the user
    if (exchange_.has_value()) exchange_->Add(input.event->rank_report().put());
    return;
  }
  judge_.OnEvent(host_name(input.node_rank), *input.event);
  if (stopped_ranks_.has_value()) {
    const auto stalled = stopped_ranks_->OnEvent(host_name(input.node_rank), *input.event);
    if (stalled.has_value()) judge_.OnStall(*stalled);
  }
  if (input.event->has_generation_ended()) {
    ended_.insert(input.node_rank);
    for (const std::string& each : input.event->generation_ended().unended()) {
      unended_ = "host " + host_name(input.node_rank) + ": " + each +
                 ", was killed and has not ended; it is left to itself";
      observer_->OnNotice(unended_);
    }
  }
  if (EndsItsDaemon(*input.event)) lost_.insert(input.node_rank);
  if (observer_failed_.has_value()) return;
  const Status status = observer_->OnEvent({host_name(input.node_rank), generation_, *input.event});
  if (status.ok()) return;
  observer_failed_ = status;
  StopFailed(job_.flags.grace_seconds);
}

void GenerationRun::StopFailed(double grace_seconds) {
  stop_->Enter(JobPhase::kStopping);
  StopHosts(grace_seconds);
}

void GenerationRun::StopHosts(double grace_seconds) {
  stopping_ = true;
  killing_ = killing_ || grace_seconds == 0;
  v1::StopRequest request;
  request.set_job_id(job_.job_id);
  request.set_generation(generation_);
  request.set_grace_seconds(grace_seconds);
  for (const int node_rank : launched_) {
    const std::shared_future<void> earlier = stops_[node_rank];
    try {
      stops_[node_rank] = std::async(std::launch::async, [this, node_rank, earlier, request] {
                            if (earlier.valid()) earlier.wait();
                            StopHost(node_rank, request);
                          }).share();
    } catch (const std::system_error&) {  // no thread is to be had: the others wait
      unanswered_stops_[node_rank] = request;
    }
  }
  RepeatStops();
}

void GenerationRun::RepeatStops() {
  std::erase_if(unanswered_stops_, [this](const auto& stop) {
    const auto& [node_rank, request] = stop;
    {
      const std::lock_guard lock(gone_mutex_);
      if (gone_.contains(node_rank)) return true;
    }
    return !NobodyAnswered(prepared_[node_rank].daemon->Stop(request).status());
  });
}

void GenerationRun::StopHost(int node_rank, const v1::StopRequest& request) {
  std::unique_lock lock(gone_mutex_);
  while (!gone_.contains(node_rank)) {
    lock.unlock();
    if (!NobodyAnswered(prepared_[node_rank].daemon->Stop(request).status())) return;
    lock.lock();
    gone_changed_.wait_for(lock, kStopAgainAfter, [&] { return gone_.contains(node_rank); });
  }
}

}  // namespace ds::cli
