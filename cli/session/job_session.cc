#include "cli/session/job_session.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/console/backlog_writer.h"
#include "cli/console/console.h"
#include "cli/flags/report_error.h"
#include "cli/job/final_status.h"
#include "cli/job/generation_run.h"
#include "cli/job/input_forwarder.h"
#include "cli/job/job_controller.h"
#include "cli/job/verdict/make_verdict.h"
#include "cli/session/host_starter.h"
#include "cli/session/job_record.h"
#include "cli/session/last_resort.h"
#include "cli/session/user_signals.h"
#include "runtime/base/exit_codes.h"

namespace ds::cli {
namespace {

bool ReadsInput(const JobPlan& plan) { return !plan.purpose.built_in && HasInput(STDIN_FILENO); }

class JobSession {
 public:
  // `known_hosts` as HostStarter says.
  JobSession(const JobPlan& plan, const Program& program, std::filesystem::path known_hosts,
             UserSignals* signals, JobRecord* record)
      : plan_(plan),
        program_(program),
        signals_(signals),
        record_(record),
        starter_(&plan, std::move(known_hosts)) {}
  // Waits for the daemons' ends. Who is tired of it kills them, but not by a signal of before it
  // was said that there is something to wait for.
  ~JobSession() {
    std::atomic<bool> told = false;
    const SignalTarget target(signals_, [&](int signal) {
      if (told && !IsForwarded(signal)) starter_.KillHosts();
    });
    starter_.AwaitHosts([&](const std::string& text) {
      record_->ShowWarning(text);
      told = true;
    });
  }
  JobSession(const JobSession&) = delete;
  JobSession& operator=(const JobSession&) = delete;

  // A daemon on every host. Signals that come meanwhile end it. An error Status: this machine is at
  // fault.
  Status StartHosts();
  // Then: the job on its hosts, to its end; the daemons are let go.
  JobOutcome Run();

 private:
  // Whether there are daemons everywhere, and nobody wants them gone.
  JobOutcome CheckHosts();
  JobOutcome RunOnHosts();

  const JobPlan& plan_;
  const Program& program_;
  UserSignals* const signals_;
  JobRecord* const record_;
  HostStarter starter_;
  int stop_signal_ = 0;  // that came while the hosts were being started
};

Status JobSession::StartHosts() {
  Status started;
  {
    const SignalTarget target(signals_, [this](int signal) {
      if (IsForwarded(signal)) return;  // there is no rank that it could go to
      if (stop_signal_ == 0) stop_signal_ = signal;
      starter_.Interrupt();
    });
    started = starter_.StartHosts([this](const std::string& text) { record_->OnNotice(text); });
  }
  return stop_signal_ != 0 ? OkStatus() : started;
}

JobOutcome JobSession::CheckHosts() {
  if (stop_signal_ != 0) return MakeUserStopVerdict(stop_signal_, plan_.purpose.first_generation);
  if (starter_.failed().empty()) return JobOutcome();
  const int host_count = static_cast<int>(plan_.world.hosts.size());
  for (const std::string& line : MakeFailureTable(starter_.failed(), host_count)) {
    record_->OnNotice(line);
  }
  return MakeUnreachableVerdict(starter_.failed().front());
}

JobOutcome JobSession::Run() try {
  const JobOutcome ready = CheckHosts();
  return ready.ok() ? RunOnHosts() : ready;
} catch (const std::system_error& error) {  // such as a machine that has no more threads to give
  return Verdict{.cause = Cause::kInternal,
                 .exit_code = kExitFailure,
                 .message = std::string("dsrun cannot go on: ") + error.what(),
                 .hint = "see the limits of processes (ulimit -u, pids.max) where dsrun runs"};
}

JobOutcome JobSession::RunOnHosts() {
  InputForwarder input(STDIN_FILENO);
  JobController controller(plan_, &program_, starter_.daemons(), record_,
                           {.input = ReadsInput(plan_) ? &input : nullptr,
                            .spares = &starter_,
                            .master_addr = starter_.FindMasterAddress()});
  LastResort last_resort(&starter_,
                         [this](const std::string& text) { record_->ShowWarning(text); });
  starter_.leases()->Listen([&](const HostChange& change) { controller.OnHostChange(change); });
  const auto let_go = [](HostStarter* starter) { starter->ReleaseHosts(); };
  const std::unique_ptr<HostStarter, decltype(let_go)> release(&starter_, let_go);
  const SignalTarget target(signals_, [&](int signal) {
    controller.OnSignal(signal);
    if (IsForwarded(signal)) return;
    starter_.Interrupt();  // a spare that is being started
    last_resort.OnStop();
  });
  return controller.Run();
}

StatusOr<ConsoleOptions> MakeConsoleOptions(const JobPlan& plan) {
  ConsoleOptions options = DetectConsole();
  options.quiet = plan.flags.quiet;
  options.errors_only = plan.flags.errors_only;
  options.timestamps = plan.flags.timestamps;
  // Who answers at a terminal sees a question that no newline ends; a pipe needs whole lines.
  options.prompts = ReadsInput(plan) && ::isatty(STDIN_FILENO) != 0;
  DS_ASSIGN_OR_RETURN(options.shown,
                      LogFilter::Parse(plan.flags.log_ranks, plan.flags.errors_only));
  options.total_steps = plan.purpose.total_steps;
  return options;
}

}  // namespace

StatusOr<int> RunJob(const JobPlan& plan, const Program& program, RunDirectory* run_directory) {
  ::signal(SIGPIPE, SIG_IGN);  // a closed console must not end the job
  UserSignals signals;         // before any other thread, which must not take the user's signals
  DS_ASSIGN_OR_RETURN(const ConsoleOptions console_options, MakeConsoleOptions(plan));
  BacklogWriter writer;
  Console console(console_options, &writer);
  JobRecord record(&plan, run_directory, &console);
  record.ShowNotices();
  DS_RETURN_IF_ERROR(signals.Listen());

  JobSession session(plan, program, run_directory->path() / "known_hosts", &signals, &record);
  const Status started = session.StartHosts();
  if (!started.ok()) {
    return ReportError(started, FinalStatus(kExitPreflight, plan.flags.exit_codes));
  }
  return record.Conclude(session.Run());
}

}  // namespace ds::cli
