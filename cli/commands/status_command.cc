#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands/command_table.h"
#include "cli/commands/find_job.h"
#include "cli/commands/job_state.h"
#include "cli/flags/flag_parser.h"
#include "runtime/base/byte_size.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/base/printable.h"

namespace ds::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

void PrintRow(const char* name, const std::string& value) {
  if (!value.empty()) std::cout << fmt::format("{:<12}{}\n", name, Printable(value));
}

std::string DescribeRank(const Json& rank) {
  std::string text =
      rank.at("host").get<std::string>() + "  " + rank.at("state").get<std::string>();
  if (!rank.at("pid").is_null()) text += "  pid " + rank.at("pid").dump();
  if (!rank.at("exit_code").is_null()) text += "  status " + rank.at("exit_code").dump();
  if (!rank.at("signal").is_null()) text += "  signal " + rank.at("signal").dump();
  if (!rank.at("memory_bytes").is_null()) {
    text += "  " + ByteSize(rank.at("memory_bytes").get<std::uint64_t>());
  }
  return text;
}

void Print(const Json& state) {
  PrintRow("job", state.at("job"));
  PrintRow("run folder", ShortenPath(state.at("run_directory").get<std::string>()));
  PrintRow("state", state.at("state"));
  if (state.at("state") == "lost") {
    std::cout << "            its agent has gone without an outcome\n";
  }
  if (state.contains("verdict") && !state["verdict"].is_null()) {
    PrintRow("verdict", state["verdict"].value("message", ""));
    PrintRow("status", state["verdict"].value("exit_code", Json()).dump());
  }
  if (!state.contains("ranks")) return;
  PrintRow("generation", state.at("generation").dump());
  PrintRow("progress", state.at("progress"));
  if (!state.at("checkpoint").is_null()) PrintRow("checkpoint", state.at("checkpoint"));
  for (const Json& rank : state.at("ranks")) {
    PrintRow(("rank " + rank.at("rank").dump()).c_str(), DescribeRank(rank));
  }
}

}  // namespace

// `dsrun status [--json] [RUN]` shows the state of one job.
StatusOr<int> StatusCommand(const Invocation& invocation) {
  std::string run;
  bool as_json = false;
  FlagParser parser("status [--json] [RUN_DIR|JOB]",
                    "Show the state of a job, which may have ended: its ranks, progress and "
                    "verdict. Without RUN_DIR the only job that runs on this machine.");
  parser.app().add_option("RUN", run, "the run directory, or the job's name");
  parser.app().add_flag("--json", as_json, "print one JSON document");
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
  if (parsed.help_shown) return kExitOk;
  DS_ASSIGN_OR_RETURN(const fs::path folder, FindJob(run, "status"));
  DS_ASSIGN_OR_RETURN(const Json state, FindJobState(folder));
  if (as_json) {
    std::cout << state.dump() << "\n";
  } else {
    Print(state);
  }
  std::cout << std::flush;
  return kExitOk;
}

}  // namespace ds::cli
