#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"
#include "cli/launch/hostfile.h"
#include "cli/launch/launch_plan.h"
#include "cli/report/read_host.h"
#include "cli/report/rows.h"
#include "cli/report/tried_facts.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"

namespace ds::cli {
namespace {

// Reports on this host only. A hostfile with other hosts is rejected, not partly used.
Status CheckHosts(const LaunchFlags& flags) {
  if (!flags.hostfile) return OkStatus();
  DS_ASSIGN_OR_RETURN(const std::vector<HostEntry> entries, ReadHostfile(*flags.hostfile));
  const ThisHost this_host = ProbeThisHost({.addresses = true});
  for (const HostEntry& entry : entries) {
    if (this_host.IsNamed(entry.name)) continue;
    return UnimplementedError("report looks at this host only, and " + *flags.hostfile +
                              " names '" + entry.name + "': run dsrun report there");
  }
  return OkStatus();
}

}  // namespace

// `dsrun report [--json]` checks this host's environment. Returns kExitOk, or kExitPreflight if a
// problem would stop a job.
StatusOr<int> ReportCommand(const Invocation& invocation) {
  LaunchFlags flags = invocation.launch;
  bool json = false;
  FlagParser parser(
      "report [flags] [--json]",
      "Show the hardware and software of this host and the problems that would stop a job.");
  parser.app().add_flag("--json", json, "print one JSON object");
  parser.app()
      .add_option(FlagNames("hostfile", "-H"), flags.hostfile,
                  "check this hostfile, which must name only this host")
      ->type_name("FILE");
  parser.app()
      .add_option(FlagNames("run_dir"), flags.run_dir,
                  "check the disk of this folder (default: runs)")
      ->type_name("DIR");
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
  if (parsed.help_shown) return kExitOk;
  DS_RETURN_IF_ERROR(CheckHosts(flags));
  DS_ASSIGN_OR_RETURN(const std::filesystem::path self, FindOwnExecutable());

  HostFacts facts = ReadHost({.run_directory = flags.run_dir.empty() ? "runs" : flags.run_dir});
  if (facts.run_directory) facts.offload = TryOffload(facts.run_directory->path);
  facts.dsrank = AskDsrank(self.parent_path() / "dsrank");
  const std::vector<ReportRow> rows = JudgeHost(facts, DS_VERSION);
  if (json) {
    using Json = nlohmann::ordered_json;
    std::cout
        << FormatReportJson(facts.name, rows).dump(2, ' ', false, Json::error_handler_t::replace)
        << "\n";
  } else {
    std::cout << FormatReportTable(facts.name, rows);
  }
  return FindWorstLevel(rows) == Level::kFail ? kExitPreflight : kExitOk;
}

}  // namespace ds::cli
