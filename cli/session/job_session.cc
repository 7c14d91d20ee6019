#include "cli/session/job_session.h"

#include <unistd.h>

#include <csignal>
#include <string>
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
#include "cli/session/user_signals.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"

namespace ds::cli {
namespace {

// Run directory first, console second: what is shown is already kept.
class JobReport : public JobObserver {
 public:
  JobReport(const JobPlan& plan, RunDirectory* run_directory, Console* console)
      : cpu_notice_(plan.purpose.built_in && plan.flags.device == Device::kAuto),
        run_directory_(run_directory),
        console_(console) {}

  void OnPrepared(const std::string& host, const v1::PrepareResponse& response) override {
    for (const v1::Finding& finding : response.findings()) {
      if (finding.level() != v1::Finding::WARN) continue;
      console_->ShowNotice("host " + host + ": " + finding.message() +
                           (finding.hint().empty() ? "" : "; " + finding.hint()));
    }
    if (cpu_notice_ && response.gpu_count() == 0) {
      console_->ShowNotice("host " + host + " has no GPU: its ranks run on CPU");
    }
  }
  Status OnEvent(const HostEvent& event) override {
    DS_RETURN_IF_ERROR(run_directory_->Append(event));
    console_->OnEvent(event);
    return OkStatus();
  }
  void OnNotice(const std::string& text) override { console_->ShowNotice(text); }
  void OnQuiet() override {
    // What fails here fails again with the next output.
    static_cast<void>(run_directory_->Flush());
    console_->OnQuiet();
  }

 private:
  const bool cpu_notice_;
  RunDirectory* const run_directory_;
  Console* const console_;
};

bool ReadsInput(const JobPlan& plan) { return !plan.purpose.built_in && HasInput(STDIN_FILENO); }

class JobSession {
 public:
  JobSession(const JobPlan& plan, const Program& program, RunDirectory* run_directory,
             UserSignals* signals, Console* console)
      : plan_(plan),
        program_(program),
        run_directory_(run_directory),
        signals_(signals),
        console_(console),
        starter_(&plan, run_directory->path() / "known_hosts") {}

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
  RunDirectory* const run_directory_;
  UserSignals* const signals_;
  Console* const console_;
  HostStarter starter_;
  int stop_signal_ = 0;  // that came while the hosts were being started
};

Status JobSession::StartHosts() {
  signals_->SetTarget([this](int signal) {
    if (IsForwarded(signal)) return;  // there is no rank that it could go to
    if (stop_signal_ == 0) stop_signal_ = signal;
    starter_.Interrupt();
  });
  const Status started =
      starter_.StartHosts([this](const std::string& text) { console_->ShowNotice(text); });
  signals_->SetTarget(nullptr);
  return stop_signal_ != 0 ? OkStatus() : started;
}

JobOutcome JobSession::CheckHosts() {
  if (stop_signal_ != 0) return MakeUserStopVerdict(stop_signal_, plan_.purpose.first_generation);
  if (starter_.failed().empty()) return JobOutcome();
  const int host_count = static_cast<int>(plan_.world.hosts.size());
  for (const std::string& line : MakeFailureTable(starter_.failed(), host_count))
    console_->ShowNotice(line);
  return MakeUnreachableVerdict(starter_.failed().front());
}

JobOutcome JobSession::Run() {
  const JobOutcome ready = CheckHosts();
  return ready.ok() ? RunOnHosts() : ready;
}

JobOutcome JobSession::RunOnHosts() {
  JobReport report(plan_, run_directory_, console_);
  InputForwarder input(STDIN_FILENO);
  JobController controller(plan_, &program_, starter_.daemons(), &report,
                           {.input = ReadsInput(plan_) ? &input : nullptr,
                            .spares = &starter_,
                            .master_addr = starter_.FindMasterAddress()});
  signals_->SetTarget([&](int signal) {
    controller.OnSignal(signal);
    if (!IsForwarded(signal)) starter_.Interrupt();  // a spare that is being started
  });
  starter_.leases()->Listen([&](const HostChange& change) { controller.OnHostChange(change); });

  const JobOutcome outcome = controller.Run();
  signals_->SetTarget(nullptr);
  starter_.ReleaseHosts();
  return outcome;
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

void ShowNotices(const JobPlan& plan, Console* console) {
  for (const std::string& notice : plan.notices) console->ShowNotice(notice);
  if (!plan.spares.empty() && plan.flags.max_restarts == 0) {
    console->ShowNotice("spare hosts take part in restarts only, and --max_restarts is not given");
  }
}

void ShowSummary(const JobPlan& plan, const RunDirectory& run_directory, Console* console) {
  const std::string path = ShortenPath(run_directory.path());
  console->ShowSummaryLine("done; the run directory is " + path);
  console->ShowSummaryLine("  metrics      " + path + "/metrics.jsonl");
  console->ShowSummaryLine("  config       " + path + "/config.resolved.json");
  console->ShowSummaryLine("  logs         " + path + "/logs");
  console->ShowSummaryLine("  checkpoints  " + ShortenPath(run_directory.checkpoints()));
  if (const std::string losses = console->progress().SummarizeLoss(); !losses.empty()) {
    console->ShowSummaryLine(losses);
  }
  for (const std::string& line : plan.purpose.closing_lines) console->ShowSummaryLine(line);
}

// The exit status of the job; what it left is shown, or why it failed.
int Conclude(const JobOutcome& outcome, const JobPlan& plan, RunDirectory* run_directory,
             Console* console) {
  console->Finish();
  static_cast<void>(run_directory->Flush());  // the index of logs that are whole
  if (outcome.ok()) {
    if (plan.purpose.trains) ShowSummary(plan, *run_directory, console);
    return kExitOk;
  }
  Verdict verdict = outcome.failure();
  verdict.exit_code = FinalStatus(verdict, plan.flags.exit_codes);
  if (const Status written = run_directory->WriteVerdict(verdict); !written.ok()) {
    console->ShowNotice("verdict.json is not written: " + written.message());
  }
  console->ShowVerdict(verdict, run_directory->path().string());
  return verdict.exit_code;
}

}  // namespace

StatusOr<int> RunJob(const JobPlan& plan, const Program& program, RunDirectory* run_directory) {
  ::signal(SIGPIPE, SIG_IGN);  // a closed console must not end the job
  UserSignals signals;         // before any other thread, which must not take the user's signals
  DS_ASSIGN_OR_RETURN(const ConsoleOptions console_options, MakeConsoleOptions(plan));
  BacklogWriter writer;
  Console console(console_options, &writer);
  ShowNotices(plan, &console);
  DS_RETURN_IF_ERROR(signals.Listen());

  JobSession session(plan, program, run_directory, &signals, &console);
  const Status started = session.StartHosts();
  if (!started.ok()) {
    return ReportError(started, FinalStatus(kExitPreflight, plan.flags.exit_codes));
  }
  const JobOutcome outcome = session.Run();
  return Conclude(outcome, plan, run_directory, &console);
}

}  // namespace ds::cli
