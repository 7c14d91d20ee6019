#include "cli/job/job_controller.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>
#include <variant>

#include "cli/job/value_exchange.h"
#include "runtime/base/clock.h"
#include "runtime/process/boot_time.h"
#include "runtime/process/thread_room.h"

namespace ds::cli {
namespace {

constexpr std::chrono::hours kPatience{1};

JobPlan WithMasterAddress(JobPlan job, const std::string& address) {
  if (!address.empty()) job.master_addr = address;
  return job;
}

JobMachine::Parts MakeParts(const Program* program, JobObserver* observer,
                            const JobController::Options& options) {
  return {.program = program,
          .observer = observer,
          .stop = options.stop,
          .has_input = options.input != nullptr,
          .draw_key = DrawRankKey,
          .find_own_pause =
              [leases = options.leases] {
                return leases == nullptr ? std::nullopt : leases->FindOwnPause();
              },
          .unix_nanos = [] { return Clock::System().UnixNanos(); }};
}

}  // namespace

JobController::JobController(JobPlan job, const Program* program,
                             const std::vector<HostDaemon*>& daemons, JobObserver* observer,
                             const Options& options)
    : job_id_(job.job_id),
      options_(options),
      inputs_(std::make_shared<Inputs>()),
      machine_(WithMasterAddress(std::move(job), options.master_addr),
               MakeParts(program, observer, options)) {
  for (HostDaemon* const daemon : daemons) {
    const int number = static_cast<int>(daemons_.size());
    daemons_[number] = daemon;
  }
}

JobController::~JobController() { inputs_->Close(); }

StopStep JobController::OnSignal(int signal) {
  const StopStep step = IsForwarded(signal) ? StopStep::kNothing : options_.stop->OnSignal(signal);
  inputs_->PutUrgent(UserSignal{signal});
  return step;
}

void JobController::OnStop() { inputs_->PutUrgent(UserSignal{options_.stop->signal()}); }

JobOutcome JobController::Run() {
  Perform(machine_.Begin());
  while (!machine_.ended()) {
    std::chrono::nanoseconds patience = kPatience;
    if (const auto next = machine_.next()) patience = std::min(patience, *next - BootTime());
    const auto input =
        inputs_->Take(std::max(std::chrono::ceil<std::chrono::milliseconds>(patience), {}));
    if (input.has_value()) Handle(*input);
    const auto next = machine_.next();
    if (next && *next <= BootTime()) Perform(machine_.OnTime(BootTime()));
  }
  return machine_.outcome();
}

void JobController::Handle(const JobInput& input) {
  if (const auto* const spare = std::get_if<SpareAnswer>(&input); spare && spare->answer.ok()) {
    daemons_[spare->host] = spare->answer->daemon;
  }
  Perform(machine_.Handle(input, BootTime()));
}

void JobController::Perform(JobActions actions) {
  for (const JobAction& action : actions) Perform(action);
}

void JobController::Perform(const JobAction& action) {
  using Kind = JobAction::Kind;
  switch (action.kind) {
    case Kind::kPrepare:
      return daemons_.at(action.host)
          ->Begin(std::get<v1::PrepareRequest>(action.request),
                  [inputs = inputs_, host = action.host](const auto& answer) {
                    inputs->Put(PrepareAnswer{host, answer});
                  });
    case Kind::kLaunch:
      return daemons_.at(action.host)
          ->Begin(std::get<v1::LaunchRequest>(action.request),
                  [answer = Answer(action, CallKind::kLaunch)](const auto& launched) {
                    answer(launched.status());
                  });
    case Kind::kWatch:
      return Watch(action);
    case Kind::kStop:
      return daemons_.at(action.host)
          ->Begin(std::get<v1::StopRequest>(action.request), Answer(action, CallKind::kStop));
    case Kind::kSignal:
      return daemons_.at(action.host)
          ->Begin(std::get<v1::SignalRequest>(action.request), Answer(action, CallKind::kSignal));
    case Kind::kShare:
      return daemons_.at(action.host)
          ->Begin(std::get<v1::ShareRequest>(action.request), Answer(action, CallKind::kShare));
    case Kind::kAbandon:
      return daemons_.at(action.host)->Abandon();
    case Kind::kGiveUp:
      return GiveUp(action);
    case Kind::kStartSpare:
      return StartSpare(action);
    case Kind::kAwaitInput:
      return AwaitInput(action);
    case Kind::kForwardInput:
      return options_.input->Begin();
    case Kind::kEndInput:
      return options_.input->Stop();
  }
}

HostDaemon::DoneCallback JobController::Answer(const JobAction& action, CallKind kind) {
  return [inputs = inputs_, host = action.host, generation = action.generation, kind,
          call = action.call](const Status& status) {
    inputs->Put(CallAnswer{host, generation, kind, status, call});
  };
}

void JobController::Watch(const JobAction& action) {
  const auto on_events = [inputs = inputs_, host = action.host, generation = action.generation](
                             std::shared_ptr<const v1::EventBatch> batch) {
    inputs->Put(HostEvents{host, generation, std::move(batch)});
  };
  const auto on_end = [inputs = inputs_, host = action.host,
                       generation = action.generation](const Status& status) {
    inputs->Put(StreamEnd{host, generation, status});
  };
  daemons_.at(action.host)->BeginWatch(action.generation, {on_events, on_end});
}

void JobController::GiveUp(const JobAction& action) {
  HostDaemon* const daemon = daemons_.at(action.host);
  daemon->Abandon();  // its lease is not renewed from now on
  daemon->HangUp();
  if (daemon->leased()) return inputs_->Put(HostGone{action.host, daemon->LeaseFrom()});
  DoAside([this, daemon, host = action.host] {
    daemon->AwaitProcesses();
    inputs_->Put(HostGone{host, std::nullopt});
  });
}

// What a library throws where this machine has no room for another thread is the spare's failure:
// nobody else would catch it on a thread of its own.
StatusOr<StartedSpare> JobController::TryStartSpare(const JobAction& action) const try {
  return options_.spares->StartSpare(action.spare, action.node_rank);
} catch (const std::system_error& error) {
  return NoRoomError(std::string("this machine cannot start it: ") + error.what());
}

void JobController::StartSpare(const JobAction& action) {
  DoAside([this, action] { inputs_->Put(SpareAnswer{action.host, TryStartSpare(action)}); });
}

void JobController::DoAside(std::function<void()> task) {
  try {
    aside_.emplace_back(task);
  } catch (const std::system_error&) {  // no room for a thread: then the loop waits
    task();
  }
}

void JobController::AwaitInput(const JobAction& action) {
  HostDaemon* const daemon = daemons_.at(action.host);
  const auto send = [this, daemon, generation = action.generation](
                        const InputForwarder::Chunk& chunk) -> StatusOr<std::uint64_t> {
    v1::InputRequest request;
    request.set_job_id(job_id_);
    request.set_generation(generation);
    request.set_offset(chunk.offset);
    request.set_data(chunk.data);
    request.set_end(chunk.end);
    DS_ASSIGN_OR_RETURN(const v1::InputResponse response, daemon->Input(request));
    return response.accepted();
  };
  inputs_->Put(InputAnswer{action.generation, options_.input->Start(send)});
}

}  // namespace ds::cli
