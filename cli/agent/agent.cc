#include "cli/agent/agent.h"

#include <grpc/grpc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "cli/agent/front_input.h"
#include "cli/agent/front_server.h"
#include "cli/agent/job_record.h"
#include "cli/agent/job_registry.h"
#include "cli/host/deadlines.h"
#include "cli/job/generation_state.h"
#include "cli/job/job_controller.h"
#include "cli/job/job_moment.h"
#include "cli/job/job_plan.h"
#include "cli/job/run_directory.h"
#include "cli/job/user_signals.h"
#include "cli/job/user_stop.h"
#include "cli/job/verdict/make_verdict.h"
#include "cli/job/verdict/verdict.h"
#include "cli/session/host_starter.h"
#include "proto/grpc_threads.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/process/boot_time.h"
#include "runtime/process/load_program.h"
#include "runtime/process/thread_quota.h"

namespace ds::cli {
namespace {

// It receives signals, serves fronts, writes to the run directory, forwards standard input and
// renews leases.
constexpr int kOwnThreads = 5;

class JobSession {
 public:
  // The user's signals, stop requests and input.
  struct User {
    UserSignals* signals;
    UserStop* stop;
    RankInput* input;                     // null: rank 0 reads none
    std::vector<int> earlier_stops = {};  // signals that an agent has received that was killed
  };
  JobSession(const AgentJob& job, AgentMeans* means, const User& user, JobRecord* record)
      : plan_(job.plan),
        program_(job.program),
        means_(means),
        input_(user.input),
        earlier_stops_(user.earlier_stops),
        signals_(user.signals),
        stop_(*user.stop),
        record_(record),
        starter_({.plan = &job.plan,
                  .known_hosts = job.run_directory->path() / "known_hosts",
                  .authority = means->authority.get(),
                  .controller_fd = means->controller.read.get(),
                  .on_release = [means] {
                    means->controller.write.Reset();
                    static_cast<void>(!::write(means->released.get(), "", 1));
                  }}) {}
  // Waits for the daemons' ends. Who is tired of it kills them, and time does.
  ~JobSession() {
    starter_.ReleaseHosts();
    StartStopTimer();
    const SignalTarget target(signals_, HearAfterTheEnd([this] { starter_.KillHosts(); }));
    starter_.AwaitHosts([this](const std::string& text) { TellOfWait(text); });
  }
  JobSession(const JobSession&) = delete;
  JobSession& operator=(const JobSession&) = delete;

  // A daemon on every host. Signals that come meanwhile end it.
  StatusOr<StartedHosts> StartHosts();
  // Then: the job on its hosts, to its end; the daemons are let go.
  JobOutcome Run(const StatusOr<StartedHosts>& hosts);
  // In place of both: takes over the job from an agent that was killed.
  JobOutcome TakeOver(const v1::JobState& state);
  // Last: records the outcome and returns the exit status. The run directory may hang.
  int Conclude(const JobOutcome& outcome);

 private:
  // Whether there are daemons everywhere, and nobody wants them gone.
  JobOutcome CheckHosts(const StatusOr<StartedHosts>& hosts);
  JobOutcome RunOnHosts(const StartedHosts& hosts, const v1::JobState* taken_over = nullptr);
  // Keeps what another agent needs to take over the job.
  void KeepState(std::optional<v1::JobState> state);
  // Applies the step of a signal to daemons and calls. The controller applies it to ranks.
  void TakeStep(StopStep step);
  // Handles a timeout of the user's stop; `controller` is null when its job has ended.
  void OnTimer(JobController* controller);
  void TellOfLastChance();
  // Nobody is waited for any more. `job_runs`: it did when the user or the time decided so.
  void GiveUp(bool job_runs);
  // `earlier`: the stop in progress at a takeover; the rest of its grace counts.
  void StartStopTimer(const std::optional<StopInProgress>& earlier = std::nullopt);
  UserSignals::Target HearAfterTheEnd(std::function<void()> on_timer);
  // Before he reads it, so that nobody answers in vain.
  void TellOfWait(const std::string& text) {
    stop_.OnTold();
    record_->ShowWarning(text);
  }

  const JobPlan& plan_;
  const Program& program_;
  AgentMeans* const means_;
  RankInput* const input_;
  const std::vector<int> earlier_stops_;
  UserSignals* const signals_;
  UserStop& stop_;
  JobRecord* const record_;
  std::uint64_t written_ = 0;  // by the record, when the stop was looked at last
  HostStarter starter_;
};

StatusOr<StartedHosts> JobSession::StartHosts() try {
  const auto on_signal = [this](int signal) {
    if (!IsForwarded(signal)) TakeStep(stop_.OnSignal(signal));  // no rank could get the others
  };
  const SignalTarget target(signals_, {.on_signal = on_signal});
  return starter_.StartHosts([this](const std::string& text) { record_->OnNotice(text); });
} catch (const std::system_error& error) {
  return OutOfResourcesError(std::string("no thread to renew leases: ") + error.what());
}

JobOutcome JobSession::CheckHosts(const StatusOr<StartedHosts>& hosts) {
  if (const int signal = stop_.signal(); signal != 0) {
    return MakeUserStopVerdict(signal, plan_.purpose.first_generation);
  }
  if (!hosts.ok()) return MakeStartVerdict(hosts.status());
  if (hosts->failed.empty()) return JobOutcome();
  const int host_count = static_cast<int>(plan_.world.hosts.size());
  for (const std::string& line : MakeFailureTable(hosts->failed, host_count)) {
    record_->OnNotice(line);
  }
  return MakeUnreachableVerdict(hosts->failed.front());
}

JobOutcome JobSession::Run(const StatusOr<StartedHosts>& hosts) try {
  const JobOutcome ready = CheckHosts(hosts);
  return ready.ok() ? RunOnHosts(*hosts) : ready;
} catch (const std::system_error& error) {  // such as a machine that has no more threads to give
  return Verdict{.cause = Cause::kInternal,
                 .exit_code = kExitFailure,
                 .message = std::string("dsrun failed: ") + error.what(),
                 .hint = "see the limits of processes (ulimit -u, pids.max) where dsrun runs"};
}

int JobSession::Conclude(const JobOutcome& outcome) {
  const SignalTarget target(signals_, HearAfterTheEnd([this] { OnTimer(nullptr); }));
  return record_->Conclude(outcome);
}

UserSignals::Target JobSession::HearAfterTheEnd(std::function<void()> on_timer) {
  stop_.Enter(JobPhase::kEnded);
  const auto on_signal = [this](int signal) {
    if (IsForwarded(signal)) return;
    if (stop_.OnSignal(signal) == StopStep::kKillDaemons) starter_.KillHosts();
    // By then a healthy disk has received everything in transit.
    if (!stop_.ends_at_once()) return StartStopTimer();
    if (stop_.BeginLastChance()) signals_->StartTimer(deadlines::kLastChance);
  };
  return {.on_signal = on_signal, .on_timer = std::move(on_timer)};
}

void JobSession::TakeStep(StopStep step) {
  if (step != StopStep::kNothing) record_->OnStop();
  if (step == StopStep::kCancelStart || step == StopStep::kKillRanks) starter_.Interrupt();
  if (step == StopStep::kStopRanks || step == StopStep::kKeepGrace) StartStopTimer();
  if (step == StopStep::kKillRanks) signals_->StartTimer(deadlines::kKilledRanks);
  if (step == StopStep::kKillDaemons) GiveUp(/*job_runs=*/true);
  if (const std::string text(StopNotice(step)); !text.empty()) record_->OnNotice(text);
}

void JobSession::StartStopTimer(const std::optional<StopInProgress>& earlier) {
  written_ = record_->written();
  std::chrono::duration<double> grace(plan_.flags.grace_seconds);
  if (earlier.has_value()) grace = std::max(earlier->end - BootTime(), std::chrono::nanoseconds(0));
  const std::chrono::duration<double> lease(plan_.flags.lease_seconds);
  signals_->StartTimer(std::chrono::ceil<std::chrono::seconds>(grace + lease) +
                       deadlines::kBehindGraceAndLease);
}

void JobSession::OnTimer(JobController* controller) {
  if (controller == nullptr) starter_.KillHosts();  // nothing of theirs is waited for
  if (stop_.signal() == 0) return;
  switch (stop_.OnTimeUp(record_->written() != written_)) {
    case Patience::kWait:
      return StartStopTimer();
    case Patience::kLastChance:
      if (controller != nullptr) TellOfLastChance();
      return signals_->StartTimer(deadlines::kLastChance);
    case Patience::kGiveUp:
      GiveUp(/*job_runs=*/controller != nullptr);
      if (controller != nullptr) controller->OnStop();
  }
}

void JobSession::TellOfLastChance() {
  const auto tell = [this](const std::string& text) { TellOfWait(text); };
  if (!starter_.TellOfHosts(tell)) {
    tell("waiting for other hosts, which are to kill their ranks; Ctrl-C gives them up");
  }
}

void JobSession::GiveUp(bool job_runs) {
  record_->GiveUp();
  // The job, which may kill them itself, ends only when this signal has been handled.
  if (starter_.KillHosts() && job_runs) {
    record_->ShowWarning(
        "the daemon of this machine is killed: the last output of its ranks may be missing");
  }
}

JobOutcome JobSession::TakeOver(const v1::JobState& state) try {
  const auto notice = [this](const std::string& text) { record_->OnNotice(text); };
  const StatusOr<StartedHosts> hosts = starter_.AdoptHosts(state, notice);
  return hosts.ok() ? RunOnHosts(*hosts, &state) : MakeStartVerdict(hosts.status());
} catch (const std::system_error& error) {
  return MakeStartVerdict(
      OutOfResourcesError(std::string("no thread to renew leases: ") + error.what()));
}

void JobSession::KeepState(std::optional<v1::JobState> state) {
  if (state.has_value()) starter_.Describe(&*state);
  means_->memory.Keep(state);
}

JobOutcome JobSession::RunOnHosts(const StartedHosts& hosts, const v1::JobState* taken_over) {
  JobPlan plan = plan_;
  plan.master_addr = hosts.master_addr;
  JobController controller(
      std::move(plan), &program_, hosts.daemons, record_,
      {.input = input_,
       .spares = &starter_,
       .stop = &stop_,
       .leases = starter_.leases(),
       .tell_of_wait = [this](const auto& text) { TellOfWait(text); },
       .keep_state = [this](auto state) { KeepState(std::move(state)); },
       .keep_moment = [this](const auto& moment) { means_->memory.KeepMoment(moment); }});
  starter_.leases()->Listen([&](const HostChange& change) { controller.OnHostChange(change); });
  const auto let_go = [](HostStarter* starter) { starter->ReleaseHosts(); };
  const std::unique_ptr<HostStarter, decltype(let_go)> release(&starter_, let_go);
  const auto earlier = taken_over == nullptr ? std::nullopt : ReadStop(*taken_over);
  if (taken_over != nullptr) {
    // A signal after a failure is not to blame.
    const bool had_failed = earlier.has_value() && !earlier->is_of_user;
    stop_.Enter(had_failed ? JobPhase::kStopping : JobPhase::kRunning);
  }
  for (const int signal : earlier_stops_) {
    record_->OnStop();
    static_cast<void>(controller.OnSignal(signal));  // no call is in progress yet
  }
  const SignalTarget target(
      signals_, {.on_signal = [&](int signal) { TakeStep(controller.OnSignal(signal)); },
                 .on_timer = [&] { OnTimer(&controller); }});
  if (!earlier_stops_.empty()) StartStopTimer(earlier);
  return taken_over == nullptr ? controller.Run() : controller.Resume(*taken_over);
}

// Starts the threads that a job cannot do without. gRPC's threads never end.
Status StartThreads(UserSignals* signals, JobRecord* record) try {
  DS_RETURN_IF_ERROR(signals->Listen());
  record->Begin();
  ::grpc_init();
  return OkStatus();
} catch (const std::system_error& error) {
  return OutOfResourcesError(std::string("no thread for signals or output: ") + error.what());
}

v1::AgentHello MakeHello(const JobPlan& plan, const AgentMeans& means) {
  v1::AgentHello hello;
  hello.set_protocol(v1::AGENT_PROTOCOL_CURRENT);
  hello.set_job_id(plan.job_id);
  hello.set_run_directory(plan.run_directory.string());
  hello.set_pid(static_cast<std::uint32_t>(::getpid()));
  hello.set_stop_count(static_cast<std::uint32_t>(means.memory.front_stop_count()));
  hello.set_killed_by(static_cast<std::uint32_t>(means.killed_by));
  return hello;
}

// The agent of one job, with its fronts.
class Agent {
 public:
  Agent(const AgentJob& job, AgentMeans* means)
      : job_(job),
        means_(means),
        earlier_stops_(means->memory.stop_signals()),
        signals_([this](int signal) {
          if (!IsForwarded(signal)) means_->memory.OnStop(signal);
        }),
        fronts_(MakeHello(job.plan, *means),
                {.on_signal = [this](int signal) { OnUserSignal(signal); },
                 .on_input = [this](const auto& chunk) { input_.OnPiece(chunk); },
                 .on_first_gone = [this](bool ends_job) { OnFirstGone(ends_job); },
                 .on_detached = [this] { means_->memory.OnDetach(); },
                 .describe = [this] { return record_.Describe(); }}),
        input_([this](const v1::FromAgent& message) { fronts_.SendToFirst(message); }),
        record_(&job.plan, job.run_directory, &fronts_, means->memory.ledger()) {}
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  int Run(UniqueFd first_front);

 private:
  Status Start(UniqueFd first_front);
  int RunSession();
  void OnFirstGone(bool ends_job) {
    input_.EndInput();
    if (ends_job) OnUserSignal(SIGHUP);
  }
  void OnUserSignal(int signal) {
    if (!IsForwarded(signal)) means_->memory.OnFrontStop(signal);
    signals_.Inject(signal);
  }

  const AgentJob& job_;
  AgentMeans* const means_;
  const std::vector<int> earlier_stops_;
  UserSignals signals_;  // before any other thread, which must not take the signals
  FrontServer fronts_;
  FrontInput input_;
  JobRecord record_;
  Status unreachable_;  // the reason why other fronts cannot connect
};

Status Agent::Start(UniqueFd first_front) try {
  if (means_->killed_by != 0) record_.OnTakenOver();
  // The lock itself is held by the guardian. Only the name of its holder cannot be written.
  const Status named = job_.run_directory->TakeOverLock();
  if (means_->killed_by == 0) DS_RETURN_IF_ERROR(named);
  DS_RETURN_IF_ERROR(job_.run_directory->ContinueWriting(means_->memory.ledger()));
  StatusOr<AgentSocket> socket = AgentSocket::Listen(job_.run_directory->path());
  unreachable_ = socket.status();
  DS_RETURN_IF_ERROR(fronts_.Start(std::move(first_front),
                                   socket.ok() ? *std::move(socket) : AgentSocket(),
                                   means_->memory.detached()));
  const int threads = v1::CountGrpcThreads() + v1::CountGrpcCallbackThreads() + kOwnThreads - 1;
  DS_RETURN_IF_ERROR(CheckThreadQuota(threads));
  return StartThreads(&signals_, &record_);
} catch (const std::system_error& error) {
  return OutOfResourcesError(std::string("no thread for the fronts of the job: ") + error.what());
}

int Agent::RunSession() {
  // Also for its guardian and the first front, which execute the same file, and for a successor,
  // which must renew the leases and not wait for a file system that hangs.
  if (means_->killed_by == 0) LoadProgram();
  if (const Status listed = RegisterJob(job_.plan.job_id, job_.plan.run_directory); !listed.ok()) {
    LogWarning("dsrun ps does not list this job: " + listed.message());
  }
  const std::optional<v1::JobState> state =
      means_->killed_by == 0 ? std::nullopt : means_->memory.Read();
  if (!state.has_value()) record_.ShowNotices();
  if (!unreachable_.ok()) {
    record_.OnNotice("dsrun attach, status and stop cannot reach this job: " +
                     unreachable_.message());
  }
  UserStop stop;
  JobSession session(job_, means_,
                     {&signals_, &stop, job_.reads_input ? &input_ : nullptr, earlier_stops_},
                     &record_);
  return session.Conclude(state.has_value() ? session.TakeOver(*state)
                                            : session.Run(session.StartHosts()));
}

int Agent::Run(UniqueFd first_front) {
  const Status started = Start(std::move(first_front));
  const int status = started.ok() ? RunSession() : record_.Conclude(MakeStartVerdict(started));
  if (job_.after) {
    if (const std::string text = job_.after(status != kExitOk); !text.empty()) {
      record_.ShowWarning(text);
    }
  }
  record_.End();
  UnregisterJob(job_.plan.job_id);
  fronts_.Close();
  return status;
}

}  // namespace

StatusOr<AgentMeans> AgentMeans::Make(const JobPlan& plan) {
  DS_ASSIGN_OR_RETURN(AgentMemory memory,
                      AgentMemory::Make(static_cast<std::size_t>(plan.host_count())));
  DS_ASSIGN_OR_RETURN(Pipe controller, MakePipe());
  AgentMeans means{.memory = std::move(memory), .controller = std::move(controller)};
  DS_ASSIGN_OR_RETURN(means.authority, MakeAuthority(plan));
  return means;
}

void RunAgent(const AgentJob& job, AgentMeans* means, UniqueFd first_front,
              const std::function<void(int)>& exit) {
  Agent agent(job, means);
  exit(agent.Run(std::move(first_front)));
}

}  // namespace ds::cli
