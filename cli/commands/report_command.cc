#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"
#include "cli/flags/launch_flags.h"
#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/launch/environment.h"
#include "cli/report/inspect_hosts.h"
#include "cli/report/report_text.h"
#include "cli/report/try_offload.h"
#include "daemon/inspect/inspect_host.h"
#include "daemon/inspect/judge.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/base/printable.h"

namespace ds::cli {
namespace {

using Json = nlohmann::ordered_json;

// Long enough to load LibTorch with its CUDA libraries from a cold disk.
constexpr std::chrono::seconds kTimeLimit{60};

std::vector<std::string> ListEnvironment() {
  std::vector<std::string> variables;
  for (const auto& [name, value] : ReadShellEnvironment()) variables.push_back(name + "=" + value);
  return variables;
}

void PrintJson(const Json& json) {
  std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
}

StatusOr<int> ReportHere(const LaunchFlags& flags, bool json) {
  DS_ASSIGN_OR_RETURN(const std::filesystem::path self, FindOwnExecutable());
  HostReport report;
  report.facts =
      daemon::InspectHost({.dsrun_version = DS_VERSION,
                           .environment = ListEnvironment(),
                           .dsrank = self.parent_path() / "dsrank",
                           .working_directory = "",
                           .run_directory = flags.run_dir.empty() ? "runs" : flags.run_dir,
                           .python = ""},
                          std::chrono::steady_clock::now() + kTimeLimit);
  report.host = report.facts.name();
  if (report.facts.run_directory().problem().empty() && report.facts.has_run_directory()) {
    *report.facts.mutable_offload() = TryOffload(report.facts.run_directory().path());
  }
  // The daemon of this host gives each rank some descriptors: see JudgeOpenFiles.
  const int ranks = std::max(report.facts.gpus_size(), 1);
  report.findings = daemon::JudgeHost(report.facts, static_cast<std::uint32_t>(ranks));
  if (json) {
    PrintJson(FormatReportJson(report));
  } else {
    std::cout << FormatReportTable(report);
  }
  return FindWorstLevel(report.findings) == v1::Finding::FAIL ? kExitPreflight : kExitOk;
}

StatusOr<int> ReportOnHosts(const Invocation& invocation, const LaunchFlags& flags, bool json) {
  DS_ASSIGN_OR_RETURN(JobRequest request,
                      GatherJobRequest("report", flags, invocation.command_line));
  const std::string python = FindInterpreter(flags.python, request.exports, request.shell);
  const JobPlan plan = PlanJob(std::move(request));
  const auto notice = [](const std::string& text) {
    std::cerr << "dsrun: " << Printable(text) << "\n";
  };
  for (const std::string& text : plan.notices) notice(text);
  DS_ASSIGN_OR_RETURN(const InspectedHosts inspected, InspectHosts(plan, python, notice));
  if (inspected.signal != 0) return 128 + inspected.signal;
  if (json) {
    PrintJson(FormatHostsJson(inspected.hosts, inspected.failed));
  } else {
    std::cout << FormatHostsTable(inspected.hosts, inspected.failed);
  }
  const v1::Finding::Level worst = FindWorstLevel(inspected.hosts, inspected.failed);
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
  parser.app().add_flag("--json", json, "print one JSON object");
  AddLaunchFlags(&parser, &flags);
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
  if (parsed.help_shown) return kExitOk;
  DS_RETURN_IF_ERROR(CheckLaunchFlags(flags));
  const bool names_hosts = flags.hostfile || !flags.include.empty() || !flags.exclude.empty();
  return names_hosts ? ReportOnHosts(invocation, flags, json) : ReportHere(flags, json);
}

}  // namespace ds::cli
