#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"
#include "cli/flags/launch_flags.h"
#include "cli/flags/report_error.h"
#include "cli/job/generation_state.h"
#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/job/user_signals.h"
#include "cli/launch/environment.h"
#include "cli/report/inspect_hosts.h"
#include "cli/report/report_text.h"
#include "cli/report/try_offload.h"
#include "daemon/inspect/child_output.h"
#include "daemon/inspect/inspect_host.h"
#include "daemon/inspect/judge.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/process/descriptor_table.h"
#include "runtime/process/exit_process.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

// Long enough to load LibTorch with its CUDA libraries from a cold disk.
constexpr std::chrono::seconds kTimeLimit{80};

std::vector<std::string> ListEnvironment() {
  std::vector<std::string> variables;
  for (const auto& [name, value] : ReadShellEnvironment()) variables.push_back(name + "=" + value);
  return variables;
}

void PrintJson(const Json& json) {
  std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
}

StatusOr<int> ReportHere(const LaunchFlags& flags, bool json) {
  UserSignals signals;
  DS_RETURN_IF_ERROR(signals.Listen());
  const SignalTarget target(&signals, {.on_signal = [](int signal) {
    if (IsForwarded(signal)) return;
    daemon::KillRunningPrograms();
    ExitProcess(128 + signal);
  }});
  DS_ASSIGN_OR_RETURN(const std::filesystem::path self, FindOwnExecutable());
  HostReport report;
  report.facts =
      daemon::InspectHost({.dsrun_version = DS_VERSION,
                           .environment = ListEnvironment(),
                           .dsrank = self.parent_path() / "dsrank",
                           .working_directory = "",
                           .run_directory = flags.run_dir.empty() ? "runs" : flags.run_dir,
                           .python = "",
                           .open_files_of_ranks = RaiseOpenFilesLimit().rlim_cur},
                          std::chrono::steady_clock::now() + kTimeLimit);
  report.host = report.facts.name();
  if (report.facts.run_directory().problem().empty() && report.facts.has_run_directory()) {
    *report.facts.mutable_offload() = TryOffload(report.facts.run_directory().path());
  }
  // The daemon of this host gives each rank some descriptors: see JudgeOpenFiles.
  const std::uint32_t ranks = std::max(report.facts.gpu_devices(), 1U);
  report.findings = daemon::JudgeHost(report.facts, ranks);
  if (json) {
    PrintJson(FormatReportJson(report));
  } else {
    std::cout << FormatReportTable(report);
  }
  return FindWorstLevel(report.findings) == v1::Finding::FAIL ? kExitPreflight : kExitOk;
}

// The requirements of a job are judged for a plan, also of this host alone.
bool AsksDaemons(const LaunchFlags& flags) {
  const LaunchFlags usual;
  return flags.hostfile || !flags.include.empty() || !flags.exclude.empty() || flags.num_nodes ||
         flags.num_gpus || flags.total_ranks || flags.share_machine ||
         flags.device != usual.device || flags.python != usual.python || !flags.exports.empty() ||
         !flags.env_files.empty() || !flags.workdir.empty();
}

// The launch flags that the command has a use for.
void AddReportFlags(FlagParser* parser, LaunchFlags* flags) {
  AddLaunchFlags(parser, flags);
  const Command& report = *FindCommand("report");
  for (CLI::Option* option : parser->app().get_options([&](CLI::Option* each) {
         return each != parser->app().get_help_ptr() && !each->get_lnames().empty() &&
                !TakesLaunchFlag(report, "--" + each->get_lnames().front());
       })) {
    parser->app().remove_option(option);
  }
}

StatusOr<int> ReportOnHosts(const Invocation& invocation, const LaunchFlags& flags, bool json) {
  DS_ASSIGN_OR_RETURN(JobRequest request,
                      GatherJobRequest("report", flags, invocation.command_line));
  const std::string python = FindInterpreter(flags.python, request.exports, request.shell);
  JobPlan plan = PlanJob(std::move(request));
  // A job that needs them would find out too late.
  std::move(plan.spares.begin(), plan.spares.end(), std::back_inserter(plan.world.hosts));
  plan.spares.clear();
  ReportNotices(plan.notices);
  const auto notice = [](const std::string& text) { ReportNotices({text}); };
  v1::Finding::Level worst = v1::Finding::OK;
  const auto show = [&](const InspectedHosts& inspected) {
    if (json) {
      PrintJson(FormatHostsJson(inspected.hosts, inspected.failed));
    } else {
      std::cout << FormatHostsTable(inspected.hosts, inspected.failed);
    }
    std::cout.flush();
    worst = FindWorstLevel(inspected.hosts, inspected.failed);
  };
  const StatusOr<int> signal = InspectHosts(plan, python, {.notice = notice, .show = show});
  if (!signal.ok()) return ReportError(signal.status(), kExitFailure);
  if (*signal != 0) return 128 + *signal;
  return worst == v1::Finding::FAIL ? kExitPreflight : kExitOk;
}

}  // namespace

// `dsrun report [--json]` checks this host's environment, or that of all hosts of a hostfile.
// Returns kExitOk, or kExitPreflight if a problem would stop a job.
StatusOr<int> ReportCommand(const Invocation& invocation) {
  LaunchFlags flags = invocation.launch;
  bool json = false;
  FlagParser parser("report [flags] [--json]",
                    "Show the hardware and software of this host, or what differs between the "
                    "hosts of a hostfile, and the problems that would stop a job.");
  AddReportFlags(&parser, &flags);
  parser.app().add_flag("--json", json, "print one JSON object");
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
  if (parsed.help_shown) return kExitOk;
  DS_RETURN_IF_ERROR(CheckLaunchFlags(flags));
  if (!AsksDaemons(flags)) return ReportHere(flags, json);
  if (!flags.run_dir.empty()) {
    return InvalidArgumentError(
        "--run_dir is for a report without flags about hosts: run directories are on the machine "
        "of dsrun");
  }
  return ReportOnHosts(invocation, flags, json);
}

}  // namespace ds::cli
