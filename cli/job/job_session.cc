#include "cli/job/job_session.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "cli/console/console.h"
#include "cli/exit_codes.h"
#include "cli/job/job_controller.h"
#include "cli/job/local_host.h"
#include "cli/job/signal_watch.h"
#include "cli/report_error.h"
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

Environment ParseExports(const std::vector<std::string>& exports) {
  Environment environment;
  for (const std::string& assignment : exports) {
    const std::size_t equals = assignment.find('=');
    environment.emplace_back(assignment.substr(0, equals), assignment.substr(equals + 1));
  }
  return environment;
}

// The value a rank will see: exported, else inherited.
std::string RankVariable(const Environment& exports, const char* name) {
  std::string value;
  if (const char* inherited = std::getenv(name); inherited != nullptr) value = inherited;
  for (const auto& [exported, exported_value] : exports) {
    if (exported == name) value = exported_value;
  }
  return value;
}

JobRequest MakeRequest(const JobSetup& setup, const RunDirectory& run_directory) {
  const LaunchFlags& flags = setup.flags;
  JobRequest request{.job_id = setup.job_id,
                     .plan = setup.plan.world,
                     .device = WireDevice(flags.device),
                     .exports = ParseExports(flags.exports),
                     .master_addr = flags.master_addr.empty()
                                        ? DefaultMasterAddress(setup.plan.world)
                                        : flags.master_addr,
                     .master_port = flags.master_port,
                     .one_device_per_rank = flags.one_device_per_rank,
                     .local_rank_position = setup.local_rank_position,
                     .grace_seconds = flags.grace_seconds,
                     .max_restarts = flags.max_restarts,
                     .first_generation = run_directory.NextGeneration(),
                     .program = setup.program};
  request.search_path = RankVariable(request.exports, "PATH");
  request.user_set_threads = !RankVariable(request.exports, "OMP_NUM_THREADS").empty();
  for (const HostEntry& entry : setup.plan.entries) {
    const auto workdir = entry.keys.find("workdir");
    request.working_directories.push_back(workdir == entry.keys.end() ? fs::current_path().string()
                                                                      : workdir->second);
  }
  return request;
}

// Every host gets its daemon; all of them are this machine.
StatusOr<std::vector<std::unique_ptr<LocalHost>>> StartDaemons(const JobSetup& setup) {
  std::vector<std::unique_ptr<LocalHost>> hosts;
  for (std::size_t i = 0; i < setup.plan.world.hosts.size(); ++i) {
    DS_ASSIGN_OR_RETURN(std::unique_ptr<LocalHost> host, LocalHost::Start(setup.job_id));
    hosts.push_back(std::move(host));
  }
  return hosts;
}

void ShowSummary(const JobSetup& setup, const RunDirectory& run_directory, Console* console) {
  if (!setup.trains) return;
  const std::string path = ShownPath(run_directory.path());
  console->Summary("done; the run directory is " + path);
  console->Summary("  metrics      " + path + "/metrics.jsonl");
  console->Summary("  config       " + path + "/config.resolved.json");
  console->Summary("  logs         " + path + "/logs");
  console->Summary("  checkpoints  " + ShownPath(run_directory.checkpoints()));
}

}  // namespace

StatusOr<int> RunJob(const JobSetup& setup, RunDirectory* run_directory) {
  ::signal(SIGPIPE, SIG_IGN);  // a closed console must not end the job
  SignalWatch signals;
  ConsoleOptions options = DetectConsole();
  options.quiet = setup.flags.quiet;
  options.total_steps = setup.total_steps;
  BacklogWriter writer;
  Console console(options, &writer);

  for (const std::string& notice : setup.notices) console.Notice(notice);
  const StatusOr<std::vector<std::unique_ptr<LocalHost>>> hosts = StartDaemons(setup);
  if (!hosts.ok()) return ReportError(hosts.status(), kExitPreflight);
  std::vector<HostDaemon*> daemons;
  for (const auto& host : *hosts) daemons.push_back(host.get());
  JobReport report(setup.trains && setup.flags.device == Device::kAuto, run_directory, &console);
  JobController controller(MakeRequest(setup, *run_directory), daemons, &report);
  DS_RETURN_IF_ERROR(signals.Listen([&](int signal) { controller.OnSignal(signal); }));

  const std::optional<Verdict> verdict = controller.Run();
  console.Finish();
  if (!verdict.has_value()) {
    ShowSummary(setup, *run_directory, &console);
    return kExitOk;
  }
  if (const Status written = run_directory->WriteVerdict(*verdict); !written.ok()) {
    console.Notice("verdict.json is not written: " + written.message());
  }
  console.ShowVerdict(*verdict, run_directory->path().string());
  return verdict->exit_code;
}

}  // namespace ds::cli
