#include "cli/session/job_session.h"

#include <grpc/grpc.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "cli/console/backlog_writer.h"
#include "cli/console/console.h"
#include "cli/job/final_status.h"
#include "cli/job/generation_state.h"
#include "cli/job/input_forwarder.h"
#include "cli/job/job_controller.h"
#include "cli/job/job_plan.h"
#include "cli/job/run_directory.h"
#include "cli/job/user_stop.h"
#include "cli/job/verdict/make_verdict.h"
#include "cli/job/verdict/verdict.h"
#include "cli/session/host_starter.h"
#include "cli/session/job_record.h"
#include "cli/session/user_signals.h"
#include "proto/grpc_threads.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/status.h"
#include "runtime/process/thread_quota.h"

namespace ds::cli {
namespace {

// Killed ranks end before that, and so do daemons that are well: the user hears of others.
constexpr std::chrono::seconds kTimeout{1};
// So long behind that notice, what he has asked for twice is given up.
constexpr std::chrono::seconds kGiveUpPatience{2};
// Behind the grace and the lease of a stop that he has asked for once: its daemon gives up ranks
// and tells of it, or is lost itself.
constexpr std::chrono::seconds kStopPatience{6};
// It hears the user, writes to the run directory and to the console, forwards standard input and
// renews leases.
constexpr int kOwnThreads = 5;
// A console that takes nothing for so long is blocked.
constexpr std::chrono::seconds kConsolePatience{5};
// From the second signal on, for all that a job's end still needs.
constexpr std::chrono::milliseconds kLastPatience{4500};

class JobSession {
 public:
  // How the user is heard, and what he wants.
  struct User {
    UserSignals* signals;
    UserStop* stop;
    bool reads_input;  // rank 0 gets dsrun's standard input
  };
  // `known_hosts` as HostStarter says.
  JobSession(const JobPlan& plan, const Program& program, std::filesystem::path known_hosts,
             const User& user, JobRecord* record)
      : plan_(plan),
        program_(program),
        reads_input_(user.reads_input),
        signals_(user.signals),
        stop_(*user.stop),
        record_(record),
        starter_(&plan, std::move(known_hosts)) {}
  // Waits for the daemons' ends. Who is tired of it kills them, and time does.
  ~JobSession() {
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
  // Last: records what came of it and returns the exit status. The run directory may hang.
  int Conclude(const JobOutcome& outcome);

 private:
  // Whether there are daemons everywhere, and nobody wants them gone.
  JobOutcome CheckHosts(const StatusOr<StartedHosts>& hosts);
  JobOutcome RunOnHosts(const StartedHosts& hosts);
  // Does what a signal means for daemons and calls. The ranks are the controller's.
  void TakeStep(StopStep step);
  // Does what time calls for in a user's stop; `controller` is null when its job has ended.
  void OnTimer(JobController* controller);
  void TellOfLastChance();
  // Nobody is waited for any more.
  void GiveUp();
  void StartStopTimer();
  void LimitEnd();
  UserSignals::Target HearAfterTheEnd(std::function<void()> on_timer);
  // Nobody else ends ranks here whose daemon has been stopped.
  UserSignals::Target MakeTarget(std::function<void(int)> on_signal,
                                 std::function<void()> on_timer = nullptr) {
    return {std::move(on_signal), std::move(on_timer), [this] { starter_.KillHosts(); }};
  }
  // Before he reads it, so that nobody answers in vain.
  void TellOfWait(const std::string& text) {
    stop_.OnTold();
    record_->ShowWarning(text);
  }

  const JobPlan& plan_;
  const Program& program_;
  const bool reads_input_;
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
  const SignalTarget target(signals_, MakeTarget(on_signal));
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
  if (!outcome.ok()) {
    signals_->SetEndStatus(FinalStatus(outcome.failure(), plan_.flags.exit_codes));
  }
  const SignalTarget target(signals_, HearAfterTheEnd([this] { OnTimer(nullptr); }));
  const int status = record_->Conclude(outcome);
  signals_->SetEndStatus(status);
  return status;
}

UserSignals::Target JobSession::HearAfterTheEnd(std::function<void()> on_timer) {
  stop_.Enter(JobPhase::kEnded);
  const auto on_signal = [this](int signal) {
    if (IsForwarded(signal)) return;
    if (stop_.OnSignal(signal) == StopStep::kKillDaemons) starter_.KillHosts();
    LimitEnd();
    // What is on its way to a disk that is well is there by then.
    if (!stop_.ends_at_once()) return StartStopTimer();
    if (stop_.BeginLastChance()) signals_->StartTimer(kGiveUpPatience);
  };
  return MakeTarget(on_signal, std::move(on_timer));
}

void JobSession::LimitEnd() {
  if (!stop_.ends_at_once()) return;
  const Verdict verdict = MakeUserStopVerdict(stop_.signal(), 0);
  signals_->EndBy(kLastPatience, FinalStatus(verdict, plan_.flags.exit_codes));
}

void JobSession::TakeStep(StopStep step) {
  LimitEnd();
  if (step == StopStep::kCancelStart || step == StopStep::kKillRanks) starter_.Interrupt();
  if (step == StopStep::kStopRanks || step == StopStep::kKeepGrace) StartStopTimer();
  if (step == StopStep::kKillRanks) signals_->StartTimer(kTimeout);
  if (step == StopStep::kKillDaemons) GiveUp();
  if (const std::string text(StopNotice(step)); !text.empty()) record_->OnNotice(text);
}

void JobSession::StartStopTimer() {
  written_ = record_->written();
  signals_->StartTimer(std::chrono::ceil<std::chrono::seconds>(std::chrono::duration<double>(
                           plan_.flags.grace_seconds + plan_.flags.lease_seconds)) +
                       kStopPatience);
}

void JobSession::OnTimer(JobController* controller) {
  if (controller == nullptr) starter_.KillHosts();  // nothing of theirs is waited for
  if (stop_.signal() == 0) return;
  switch (stop_.OnTimeUp(record_->written() != written_)) {
    case Patience::kWait:
      return StartStopTimer();
    case Patience::kLastChance:
      if (controller != nullptr) TellOfLastChance();
      return signals_->StartTimer(kGiveUpPatience);
    case Patience::kGiveUp:
      GiveUp();
      if (controller != nullptr) controller->OnStop();
  }
}

void JobSession::TellOfLastChance() {
  const auto tell = [this](const std::string& text) { TellOfWait(text); };
  if (!starter_.TellOfHosts(tell)) {
    tell("waiting for other hosts, which are to kill their ranks; Ctrl-C gives them up");
  }
}

void JobSession::GiveUp() {
  LimitEnd();
  record_->GiveUp();
  if (!starter_.KillHosts() || stop_.ended()) return;
  record_->ShowWarning(
      "the daemon of this machine is killed: the last output of its ranks may be missing");
}

JobOutcome JobSession::RunOnHosts(const StartedHosts& hosts) {
  InputForwarder input(STDIN_FILENO);
  JobPlan plan = plan_;
  plan.master_addr = hosts.master_addr;
  JobController controller(std::move(plan), &program_, hosts.daemons, record_,
                           {.input = reads_input_ ? &input : nullptr,
                            .spares = &starter_,
                            .stop = &stop_,
                            .leases = starter_.leases(),
                            .tell_of_wait = [this](const auto& text) { TellOfWait(text); }});
  starter_.leases()->Listen([&](const HostChange& change) { controller.OnHostChange(change); });
  const auto let_go = [](HostStarter* starter) { starter->ReleaseHosts(); };
  const std::unique_ptr<HostStarter, decltype(let_go)> release(&starter_, let_go);
  const SignalTarget target(signals_,
                            MakeTarget([&](int signal) { TakeStep(controller.OnSignal(signal)); },
                                       [&] { OnTimer(&controller); }));
  return controller.Run();
}

// The job's end is kept: nothing but the console is waited for, be it for ever, unless somebody
// wants dsrun to end. If he said so before, the console gets as long as it takes something.
void AwaitConsole(UserSignals* signals, const UserStop& stop, BacklogWriter* writer) {
  std::uint64_t written = writer->written_bytes();
  const auto on_signal = [&](int signal) {
    if (!IsForwarded(signal)) writer->GiveUp();
  };
  const auto on_timer = [&] {
    const std::uint64_t now = writer->written_bytes();
    if (std::exchange(written, now) == now) return writer->GiveUp();
    signals->StartTimer(kConsolePatience);
  };
  const SignalTarget target(signals, {.on_signal = on_signal, .on_timer = on_timer});
  if (stop.signal() != 0) signals->StartTimer(kConsolePatience);
  writer->Flush();
}

// Those that a job does not go on without. gRPC's are never ended.
Status StartThreads(UserSignals* signals, BacklogWriter* writer, JobRecord* record) try {
  DS_RETURN_IF_ERROR(signals->Listen());
  writer->Start();
  record->Begin();
  ::grpc_init();
  return OkStatus();
} catch (const std::system_error& error) {
  return OutOfResourcesError(std::string("no thread for signals or output: ") + error.what());
}

ConsoleOptions MakeConsoleOptions(const JobPlan& plan, bool reads_input) {
  ConsoleOptions options = DetectConsole();
  options.quiet = plan.flags.quiet;
  options.errors_only = plan.flags.errors_only;
  options.timestamps = plan.flags.timestamps;
  // Who answers at a terminal sees a question that no newline ends; a pipe needs whole lines.
  options.prompts = reads_input && ::isatty(STDIN_FILENO) != 0;
  options.shown = plan.shown;
  options.total_steps = plan.purpose.total_steps;
  return options;
}

}  // namespace

StatusOr<int> RunJob(const JobPlan& plan, const Program& program, RunDirectory* run_directory) {
  ::signal(SIGPIPE, SIG_IGN);  // a closed console must not end the job
  const bool reads_input = !plan.purpose.built_in && HasInput(STDIN_FILENO);
  BacklogWriter writer;
  Console console(MakeConsoleOptions(plan, reads_input), &writer);
  JobRecord record(&plan, run_directory, &console);
  // Until there is one that hears them, the user's signals end this process like any other.
  const int threads = v1::CountGrpcThreads() + v1::CountGrpcCallbackThreads() + kOwnThreads;
  if (const Status enough = CheckThreadQuota(threads); !enough.ok()) {
    return record.Conclude(MakeStartVerdict(enough));
  }
  UserSignals signals;  // before any other thread, which must not take the user's signals
  if (const Status begun = StartThreads(&signals, &writer, &record); !begun.ok()) {
    return record.Conclude(MakeStartVerdict(begun));
  }
  record.ShowNotices();

  UserStop stop;
  int status = kExitOk;
  {
    JobSession session(plan, program, run_directory->path() / "known_hosts",
                       {&signals, &stop, reads_input}, &record);
    status = session.Conclude(session.Run(session.StartHosts()));
  }
  AwaitConsole(&signals, stop, &writer);
  record.End();  // while there is somebody to end this process if that hangs
  return status;
}

}  // namespace ds::cli
