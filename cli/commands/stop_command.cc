#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands/command_table.h"
#include "cli/commands/find_job.h"
#include "cli/commands/job_state.h"
#include "cli/flags/flag_parser.h"
#include "cli/front/agent_client.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/printable.h"

namespace ds::cli {

// `dsrun stop [--now] [RUN]` stops a job, as Ctrl-C in its dsrun does.
StatusOr<int> StopCommand(const Invocation& invocation) {
  std::string run;
  bool now = false;
  bool as_json = false;
  FlagParser parser("stop [--now] [--json] [RUN_DIR|JOB]",
                    "Stop a job and wait for its end: its ranks get SIGTERM and, after the job's "
                    "--grace_seconds, SIGKILL. Without RUN_DIR the only job that runs on this "
                    "machine.");
  parser.app().add_option("RUN", run, "the run directory, or the job's name");
  parser.app().add_flag("--now", now, "kill the ranks at once");
  parser.app().add_flag("--json", as_json, "print the verdict as JSON");
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
  if (parsed.help_shown) return kExitOk;
  DS_ASSIGN_OR_RETURN(const std::filesystem::path folder, FindJob(run, "stop"));
  DS_ASSIGN_OR_RETURN(const auto client, AgentClient::Connect(folder));
  client->SendSignal(SIGTERM);
  if (now) client->SendSignal(SIGTERM);
  DS_ASSIGN_OR_RETURN(const v1::JobEnded ended, client->AwaitEnd());
  if (as_json) {
    DS_ASSIGN_OR_RETURN(const nlohmann::ordered_json state, FindJobState(folder));
    std::cout << state.at("verdict").dump() << std::endl;
  } else {
    std::cout << (ended.has_verdict() ? Printable(ended.verdict().message()) : "the job succeeded")
              << std::endl;
  }
  return kExitOk;
}

// `dsrun detach [RUN]` lets a job go on without the dsrun that started it.
StatusOr<int> DetachCommand(const Invocation& invocation) {
  std::string run;
  FlagParser parser("detach [RUN_DIR|JOB]",
                    "Let a job go on without the dsrun that shows it, which exits. Without RUN_DIR "
                    "the only job that runs on this machine.");
  parser.app().add_option("RUN", run, "the run directory, or the job's name");
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
  if (parsed.help_shown) return kExitOk;
  DS_ASSIGN_OR_RETURN(const std::filesystem::path folder, FindJob(run, "detach"));
  DS_ASSIGN_OR_RETURN(const auto client, AgentClient::Connect(folder));
  DS_RETURN_IF_ERROR(client->Detach());
  return kExitOk;
}

}  // namespace ds::cli
