#include "cli/session/job_session.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <memory>
#include <utility>
#include <vector>

#include "cli/console/console.h"
#include "cli/flags/report_error.h"
#include "cli/job/job_controller.h"
#include "cli/plan/core_list.h"
#include "cli/plan/exports.h"
#include "cli/session/signal_relay.h"
#include "cli/session/signal_watch.h"
#include "cli/session/start_hosts.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;

// Run directory first, console second: what is shown is already kept.
class JobReport : public JobObserver {
 public:
  JobReport(bool cpu_notice, RunDirectory* run_directory, Console* console)
      : cpu_notice_(cpu_notice), run_directory_(run_directory), console_(console) {}

  void OnPrepared(const std::string& host, const v1::PrepareResponse& response) override {
    for (const v1::Finding& finding : response.findings()) {
      if (finding.level() != v1::Finding::WARN) continue;
      console_->Notice("host " + host + ": " + finding.message() +
                       (finding.hint().empty() ? "" : "; " + finding.hint()));
    }
    if (cpu_notice_ && response.gpu_count() == 0) {
      console_->Notice("host " + host + " has no GPU: its ranks run on CPU");
    }
  }
  void OnLaunching(int generation, int ranks) override {
    // What fails here fails again with the first event of the rank, which ends the job.
    static_cast<void>(run_directory_->MakeLogs(generation, ranks));
  }
  Status OnEvent(const HostEvent& event) override {
    DS_RETURN_IF_ERROR(run_directory_->Append(event));
    console_->OnEvent(event);
    return OkStatus();
  }
  void OnNotice(const std::string& text) override { console_->Notice(text); }
  void OnQuiet() override { console_->OnQuiet(); }

 private:
  const bool cpu_notice_;
  RunDirectory* const run_directory_;
  Console* const console_;
};

v1::PrepareRequest::Device WireDevice(Device device) {
  switch (device) {
    case Device::kAuto:
      return v1::PrepareRequest::DEVICE_AUTO;
    case Device::kCpu:
      return v1::PrepareRequest::DEVICE_CPU;
    case Device::kCuda:
      return v1::PrepareRequest::DEVICE_CUDA;
  }
  return v1::PrepareRequest::DEVICE_AUTO;
}

// Where the ranks of a host run: as its hostfile entry says, else as --workdir says, else here.
std::string WorkingDirectory(const LaunchFlags& flags, const HostEntry& entry) {
  const auto own = entry.keys.find("workdir");
  if (own != entry.keys.end()) return own->second;
  return (fs::current_path() / flags.workdir).lexically_normal().string();
}

// Every host's exports: this machine's ranks inherit this shell's environment, those of another get
// what DeepSpeed exports of it.
void AddHosts(const JobSetup& setup, JobRequest* request) {
  const std::size_t hosts = setup.plan.world.hosts.size();
  for (std::size_t node = 0; node < setup.plan.entries.size(); ++node) {
    const std::string folder = WorkingDirectory(setup.flags, setup.plan.entries[node]);
    const bool remote = !setup.plan.here[node];
    Environment exports =
        remote ? Overlay(RemoteExports(ShellEnvironment(), folder), setup.exports) : setup.exports;
    if (node >= hosts) {
      request->spares.push_back(
          {setup.plan.spares[node - hosts], folder, std::move(exports), remote});
      continue;
    }
    request->working_directories.push_back(folder);
    request->remote.push_back(remote);
    request->exports.push_back(std::move(exports));
  }
}

// Requires: checked by CheckLaunchFlags.
std::vector<ProcessLimit> ParseLimits(const std::vector<std::string>& words) {
  std::vector<ProcessLimit> limits;
  for (const std::string& word : words) limits.push_back(*ParseLimit(word));
  return limits;
}

// The master's address is that of a job without other hosts.
JobRequest MakeRequest(const JobSetup& setup) {
  const LaunchFlags& flags = setup.flags;
  JobRequest request{.job_id = setup.job_id,
                     .plan = setup.plan.world,
                     .device = WireDevice(flags.device),
                     .master_addr = flags.master_addr.empty()
                                        ? DefaultMasterAddress(setup.plan.world)
                                        : flags.master_addr,
                     .master_addr_named = !flags.master_addr.empty(),
                     .master_port = flags.master_port,
                     .one_device_per_rank = flags.one_device_per_rank,
                     .umask = flags.umask,
                     .limits = ParseLimits(flags.ulimits),
                     .local_rank_position = setup.local_rank_position,
                     .grace_seconds = flags.grace_seconds,
                     .max_restarts = flags.max_restarts,
                     .bind_cores = flags.bind_cores_to_rank,
                     .first_generation = setup.first_generation,
                     .executable = setup.executable,
                     .script = setup.script,
                     .program = setup.program};
  if (!flags.bind_core_list.empty()) {
    request.core_list = ParseCoreList(flags.bind_core_list).value();  // the plan has checked it
  }
  request.user_set_threads = !RankVariable(setup.exports, "OMP_NUM_THREADS").value_or("").empty();
  AddHosts(setup, &request);
  return request;
}

// All failures in one table; the verdict is about the first.
Verdict HostsFailed(const std::vector<FailedHost>& failed, int host_count, Console* console) {
  for (const std::string& line : FailureTable(failed, host_count)) console->Notice(line);
  const FailedHost& first = failed.front();
  return Verdict{.cause = Cause::kPreflight,
                 .host = first.host,
                 .exit_code = kExitPreflight,
                 .message = "host " + first.host + ": " + first.failure.message,
                 .proof = "reaching it failed: " + std::string(FailureName(first.failure.kind)),
                 .hint = first.failure.hint};
}

StartOptions HowToStart(const JobSetup& setup) {
  const auto milliseconds = [](double seconds) {
    return std::chrono::milliseconds(std::llround(seconds * 1000));
  };
  return {.job_id = setup.job_id,
          .known_hosts = setup.run_directory / "known_hosts",
          .timeout = milliseconds(setup.flags.ssh_timeout),
          .lease = milliseconds(setup.flags.lease_seconds),
          .ssh_port = setup.flags.ssh_port};
}

struct User {
  SignalRelay* signals;
  Console* console;
};

struct JobHosts {
  HostStarter starter;
  StartedHosts started = {};
};

using MaybeVerdict = std::optional<Verdict>;

// A daemon on every host; a verdict when nothing is started. Signals that come meanwhile end it.
StatusOr<MaybeVerdict> StartJobHosts(const JobRequest& request, const User& user, JobHosts* hosts) {
  int stop_signal = 0;  // the relay's, until it has another target
  user.signals->SetTarget([&](int signal) {
    if (IsForwarded(signal)) return;  // there is no rank that it could go to
    if (stop_signal == 0) stop_signal = signal;
    hosts->starter.Interrupt();
  });
  StatusOr<StartedHosts> started =
      hosts->starter.Run([&user](const std::string& text) { user.console->Notice(text); });
  user.signals->SetTarget(nullptr);
  if (stop_signal != 0) {
    return MaybeVerdict(UserStopVerdict(stop_signal, request.first_generation));
  }
  if (!started.ok()) return started.status();
  hosts->started = std::move(started).value();
  if (hosts->started.failed.empty()) return MaybeVerdict();
  const int count = static_cast<int>(request.plan.hosts.size());
  return MaybeVerdict(HostsFailed(hosts->started.failed, count, user.console));
}

// Starts spares with what started the other hosts.
class SessionSpares : public SpareStarter {
 public:
  explicit SessionSpares(JobHosts* hosts) : hosts_(hosts) {}

  StatusOr<StartedSpare> StartSpare(int spare, int node_rank) override {
    return hosts_->starter.StartSpare(spare, node_rank, &hosts_->started);
  }

 private:
  JobHosts* const hosts_;
};

// The exit status of a job that ended otherwise than well.
int Conclude(const Verdict& verdict, RunDirectory* run_directory, Console* console) {
  console->Finish();
  if (const Status written = run_directory->WriteVerdict(verdict); !written.ok()) {
    console->Notice("verdict.json is not written: " + written.message());
  }
  console->ShowVerdict(verdict, run_directory->path().string());
  return verdict.exit_code;
}

void ShowSummary(const JobSetup& setup, const RunDirectory& run_directory, Console* console) {
  if (!setup.trains) return;
  const std::string path = ShownPath(run_directory.path());
  console->Summary("done; the run directory is " + path);
  console->Summary("  metrics      " + path + "/metrics.jsonl");
  console->Summary("  config       " + path + "/config.resolved.json");
  console->Summary("  logs         " + path + "/logs");
  console->Summary("  checkpoints  " + ShownPath(run_directory.checkpoints()));
  if (const std::string losses = console->progress().LossSummary(); !losses.empty()) {
    console->Summary(losses);
  }
  for (const std::string& line : setup.closing_lines) console->Summary(line);
}

bool ForwardsInput(const JobSetup& setup) { return setup.forward_input && HasInput(STDIN_FILENO); }

// The job on hosts that have their daemons, to its end; the daemons are let go.
MaybeVerdict RunOnHosts(const JobSetup& setup, JobRequest request, RunDirectory* run_directory,
                        JobHosts* hosts, const User& user) {
  std::vector<HostDaemon*> daemons;
  for (const auto& host : hosts->started.daemons) {
    if (host != nullptr) daemons.push_back(host.get());  // a spare has none yet
  }
  JobReport report(setup.trains && setup.flags.device == Device::kAuto, run_directory,
                   user.console);
  if (!request.master_addr_named) request.master_addr = hosts->started.master_addr;
  InputForwarder input(STDIN_FILENO);
  SessionSpares spares(hosts);
  JobController controller(std::move(request), daemons, &report,
                           {.input = ForwardsInput(setup) ? &input : nullptr, .spares = &spares});
  user.signals->SetTarget([&](int signal) {
    controller.OnSignal(signal);
    if (!IsForwarded(signal)) hosts->starter.Interrupt();  // a spare that is being started
  });
  LeaseKeeper* const leases = hosts->started.leases.get();
  leases->Listen([&](const HostChange& change) { controller.OnHostChange(change); });

  MaybeVerdict verdict = controller.Run();
  leases->Release();
  user.signals->SetTarget(nullptr);
  for (const auto& host : hosts->started.daemons) {
    if (host != nullptr) host->HangUp();
  }
  return verdict;
}

StatusOr<ConsoleOptions> WhatIsShown(const JobSetup& setup) {
  ConsoleOptions options = DetectConsole();
  options.quiet = setup.flags.quiet;
  options.errors_only = setup.flags.errors_only;
  DS_ASSIGN_OR_RETURN(options.shown,
                      LogFilter::Parse(setup.flags.log_ranks, setup.flags.errors_only));
  options.total_steps = setup.total_steps;
  return options;
}

}  // namespace

StatusOr<int> RunJob(const JobSetup& setup) {
  ::signal(SIGPIPE, SIG_IGN);  // a closed console must not end the job
  SignalRelay relay;
  SignalWatch signals;  // before any other thread, which must not take the user's signals
  DS_ASSIGN_OR_RETURN(const ConsoleOptions console_options, WhatIsShown(setup));
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<RunDirectory> run_directory, setup.open());

  BacklogWriter writer;
  Console console(console_options, &writer);

  for (const std::string& notice : setup.notices) console.Notice(notice);
  if (!setup.plan.spares.empty() && setup.flags.max_restarts == 0) {
    console.Notice("spare hosts take part in restarts only, and --max_restarts is not given");
  }
  DS_RETURN_IF_ERROR(signals.Listen([&relay](int signal) { relay.Send(signal); }));
  const User user{&relay, &console};
  JobRequest request = MakeRequest(setup);
  JobHosts hosts{.starter = HostStarter(&setup.plan, HowToStart(setup))};
  const StatusOr<MaybeVerdict> refused = StartJobHosts(request, user, &hosts);
  if (!refused.ok()) return ReportError(refused.status(), kExitPreflight);
  if (refused->has_value()) return Conclude(**refused, run_directory.get(), &console);
  const MaybeVerdict verdict =
      RunOnHosts(setup, std::move(request), run_directory.get(), &hosts, user);
  if (verdict.has_value()) return Conclude(*verdict, run_directory.get(), &console);
  console.Finish();
  ShowSummary(setup, *run_directory, &console);
  return kExitOk;
}

}  // namespace ds::cli
