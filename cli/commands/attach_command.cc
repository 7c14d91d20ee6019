#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "cli/agent/agent_address.h"
#include "cli/commands/command_table.h"
#include "cli/commands/find_job.h"
#include "cli/flags/flag_parser.h"
#include "cli/front/agent_client.h"
#include "cli/front/front.h"
#include "runtime/base/counted.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"

namespace ds::cli {
namespace {

std::string MakeGreeting(const std::filesystem::path& folder, const nlohmann::ordered_json& state) {
  return "attached to the job of " + ShortenPath(folder) + ": " +
         Counted(state.at("ranks").size(), "rank") + " on " +
         Counted(state.at("hosts").size(), "host") + ", " + state.at("state").get<std::string>() +
         "; Ctrl-C stops it";
}

}  // namespace

// `dsrun attach [RUN]` shows a running job, as the dsrun that started it does.
StatusOr<int> AttachCommand(const Invocation& invocation) {
  std::string run;
  FlagParser parser("attach [RUN_DIR|JOB]",
                    "Show a running job: its output from now on, its progress and its verdict. "
                    "Ctrl-C stops the job; a closed terminal does not. Without RUN_DIR the only "
                    "job that runs on this machine.");
  parser.app().add_option("RUN", run, "the run directory, or the job's name");
  DS_ASSIGN_OR_RETURN(const FlagParser::Result parsed,
                      parser.Parse(invocation.arguments, FlagParser::RemainingWords::kRefused));
  if (parsed.help_shown) return kExitOk;
  DS_ASSIGN_OR_RETURN(const std::filesystem::path folder, FindJob(run, "attach"));
  DS_ASSIGN_OR_RETURN(const auto client, AgentClient::Connect(folder));
  DS_ASSIGN_OR_RETURN(const nlohmann::ordered_json state, client->AskStatus());
  FrontOptions options{.console = DetectConsole(),
                       .run_directory = folder,
                       .exit_codes = invocation.launch.exit_codes,
                       .leaves_on_hangup = true,
                       .greeting = MakeGreeting(folder, state),
                       .await_successor = [folder] { return AwaitNextAgent(folder); }};
  const nlohmann::ordered_json& total_steps = state.at("total_steps");
  if (!total_steps.is_null()) options.console.total_steps = total_steps.get<std::int64_t>();
  Front front(std::move(options));
  DS_RETURN_IF_ERROR(front.Begin());
  DS_ASSIGN_OR_RETURN(UniqueFd connection, ConnectToAgent(folder));
  if (const auto status = front.Run(std::move(connection))) return *status;
  return UnavailableError("the agent of the job has gone without an outcome");
}

}  // namespace ds::cli
