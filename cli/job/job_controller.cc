#include "cli/job/job_controller.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>
#include <variant>

#include "cli/host/deadlines.h"
#include "cli/job/value_exchange.h"
#include "runtime/base/clock.h"
#include "runtime/process/boot_time.h"
#include "runtime/process/thread_quota.h"

namespace ds::cli {
namespace {

constexpr std::chrono::hours kTimeout{1};

}  // namespace

// The queue of inputs: many threads put, one takes. Nobody waits to put: what comes is as much as
// was asked for, one answer for a call and one batch of events from a host at a time.
//
// Thread-safe.
class JobController::Inputs {
 public:
  void Put(JobInput item) { Insert(&items_, std::move(item)); }
  // Inserts before all normal items and after earlier urgent ones, so that they do not
  // wait for a long queue.
  void PutUrgent(JobInput item) { Insert(&urgent_, std::move(item)); }

  // Waits for an item for at most `timeout`.
  std::optional<JobInput> Take(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    const auto is_filled = [&] { return !urgent_.empty() || !items_.empty(); };
    if (!filled_.wait_for(lock, timeout, is_filled)) return std::nullopt;
    std::deque<JobInput>& next = urgent_.empty() ? items_ : urgent_;
    std::optional<JobInput> item(std::move(next.front()));
    next.pop_front();
    return item;
  }

  // Drops all items, and all later ones.
  void Close() {
    std::deque<JobInput> dropped, urgent;  // their destructors may call Put
    const std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(items_);
    urgent.swap(urgent_);
  }

 private:
  void Insert(std::deque<JobInput>* line, JobInput item) {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    line->push_back(std::move(item));
    filled_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<JobInput> urgent_, items_;  // guarded by mutex_, like closed_
  bool closed_ = false;
};

JobController::JobController(JobPlan job, const Program* program,
                             std::map<int, HostDaemon*> daemons, JobObserver* observer,
                             const Options& options)
    : options_(options),
      program_(program),
      daemons_(std::move(daemons)),
      inputs_(std::make_shared<Inputs>()),
      machine_(
          std::move(job),
          {.program = program,
           .observer = observer,
           .stop = options.stop,
           .has_input = options.input != nullptr,
           .draw_key = DrawRankKey,
           .find_own_pause =
               [leases = options.leases](std::optional<int> number) {
                 return leases == nullptr ? std::nullopt : leases->FindOwnPause(number);
               },
           .unix_nanos = [] { return Clock::System().UnixNanos(); },
           .convert_time =
               [this](int host, std::chrono::nanoseconds boot_time) {
                 return daemons_.at(host)->ConvertTime(boot_time);
               },
           .absent = options.spares == nullptr ? AbsentHosts() : options.spares->absent_hosts(),
           .keep_state = options.keep_state,
           .keep_moment = options.keep_moment,
           .find_clock = [this](int host) { return daemons_.at(host)->ClockOffset(); }}) {}

JobController::~JobController() { inputs_->Close(); }

StopStep JobController::OnSignal(int signal) {
  const StopStep step = IsForwarded(signal) ? StopStep::kNothing : options_.stop->OnSignal(signal);
  inputs_->PutUrgent(UserSignal{signal});
  return step;
}

void JobController::OnStop() { inputs_->PutUrgent(UserSignal{options_.stop->signal()}); }

void JobController::OnHostChange(const HostChange& change) { inputs_->PutUrgent(change); }

JobOutcome JobController::Run() { return Handle(machine_.Begin()); }

JobOutcome JobController::Resume(const v1::JobState& state) {
  return Handle(machine_.Resume(state));
}

JobOutcome JobController::Handle(const JobActions& first) {
  Perform(first);
  while (!machine_.ended()) {
    const std::chrono::nanoseconds now = BootTime();
    const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(
        machine_.next().value_or(now + kTimeout) - now);
    const JobInput input = inputs_->Take(std::max(timeout, {})).value_or(TimePassed());
    if (const auto* const started = std::get_if<ReplacementAnswer>(&input);
        started && started->answer.ok()) {
      daemons_[started->host] = started->answer->daemon;
    }
    Perform(machine_.Handle(input, BootTime()));
  }
  return machine_.outcome();
}

void JobController::Perform(const JobActions& actions) {
  for (const JobAction& action : actions) {
    std::visit([&](const auto& what) { Do(action, what); }, action.what);
  }
}

template <typename Request>
void JobController::Do(const JobAction& action, const Request& request) {
  daemons_.at(action.host)
      ->Begin(request, [inputs = inputs_, host = action.host,
                        generation = action.generation]<typename Response>(
                           const StatusOr<Response>& answer) {
        inputs->Put(Answer<Response>{host, generation, answer});
      });
}

// The input's reader gets its thread first: the ranks may leave room for none. Without it no rank
// starts: the Launch that announces it is the first of its generation.
void JobController::Do(const JobAction& action, const v1::LaunchRequest& request) {
  if (request.forward_input()) input_ = StartInput(daemons_.at(action.host), request);
  if (input_.ok()) return Do<v1::LaunchRequest>(action, request);
  inputs_->Put(Answer<v1::LaunchResponse>{action.host, action.generation,
                                          input_.WithContext("rank 0's standard input")});
}

Status JobController::StartInput(HostDaemon* daemon, const v1::LaunchRequest& launch) {
  v1::InputRequest request;
  request.set_job_id(launch.job_id());
  request.set_generation(launch.generation());
  return options_.input->Start(
      [daemon, request](const InputPiece& piece) mutable -> StatusOr<std::uint64_t> {
        request.set_offset(piece.offset);
        request.set_data(piece.data);
        request.set_end(piece.end);
        DS_ASSIGN_OR_RETURN(const v1::InputResponse response, daemon->Input(request));
        return response.accepted();
      });
}

void JobController::Do(const JobAction& action, const WatchHost& watch) {
  const auto on_events = [inputs = inputs_, host = action.host, generation = action.generation](
                             std::shared_ptr<const v1::EventBatch> batch) {
    inputs->Put(HostEvents{host, generation, std::move(batch)});
  };
  const auto on_end = [inputs = inputs_, host = action.host,
                       generation = action.generation](const Status& status) {
    inputs->Put(StreamEnd{host, generation, status});
  };
  daemons_.at(action.host)
      ->BeginWatch({.number = action.generation, .again = watch.again}, {on_events, on_end});
}

void JobController::Do(const JobAction& action, AbandonHost) {
  daemons_.at(action.host)->Abandon();
}

void JobController::Do(const JobAction& action, const GiveHostUp& give_up) {
  HostDaemon* const daemon = daemons_.at(action.host);
  if (give_up.release && daemon->leased()) {
    const auto on_answer = [inputs = inputs_, daemon, host = action.host](const Status&) {
      daemon->Abandon();
      inputs->Put(HostGone{host, daemon->LeaseFrom()});
    };
    return daemon->Renew({.release = true, .timeout = deadlines::kRelease}, on_answer);
  }
  daemon->Abandon();  // its lease is not renewed from now on
  daemon->HangUp();
  if (daemon->leased()) return inputs_->Put(HostGone{action.host, daemon->LeaseFrom()});
  DoAside([this, daemon, host = action.host] {
    daemon->AwaitProcesses(options_.tell_of_wait);
    inputs_->Put(HostGone{host, std::nullopt});
  });
}

void JobController::Do(const JobAction& action, const StartReplacement& start) {
  DoAside([this, start, host = action.host] {
    try {
      inputs_->Put(ReplacementAnswer{host, options_.spares->StartReplacement(start.replacement)});
    } catch (const std::system_error& error) {
      // A library had no room for another thread. Nobody else catches that here.
      inputs_->Put(ReplacementAnswer{
          host, OutOfResourcesError(std::string("this machine cannot start it: ") + error.what())});
    }
  });
}

void JobController::Do(const JobAction& action, AskProgram) {
  DoAside([this, generation = action.generation] {
    inputs_->Put(ProgramAnswer{generation, program_->ForGeneration(generation)});
  });
}

void JobController::DoAside(std::function<void()> task) {
  try {
    aside_.emplace_back(task);
  } catch (const std::system_error&) {  // no room for a thread: then the loop waits
    task();
  }
}

void JobController::Do(const JobAction& /*action*/, ForwardInput) { options_.input->Begin(); }

void JobController::Do(const JobAction& /*action*/, EndInput) { options_.input->Stop(); }

}  // namespace ds::cli
