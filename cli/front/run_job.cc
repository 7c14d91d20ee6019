#include "cli/front/run_job.h"

#include <unistd.h>

#include <optional>
#include <utility>

#include "cli/front/agent_process.h"
#include "cli/front/front.h"
#include "cli/job/verdict/make_verdict.h"
#include "cli/job/verdict/verdict.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"

namespace ds::cli {
namespace {

ConsoleOptions MakeConsoleOptions(const JobPlan& plan, bool reads_input) {
  ConsoleOptions options = DetectConsole();
  options.quiet = plan.flags.quiet;
  options.errors_only = plan.flags.errors_only;
  options.timestamps = plan.flags.timestamps;
  // Who answers at a terminal sees a question that no newline ends; a pipe needs whole lines.
  options.prompts = reads_input && ::isatty(STDIN_FILENO) != 0;
  options.shown = plan.shown;
  options.total_steps = plan.purpose.total_steps;
  return options;
}

Verdict MakeAgentVerdict(const std::string& end, const RunDirectory& run_directory) {
  return {.cause = Cause::kInternal,
          .exit_code = kExitFailure,
          .message = "the agent of the job has ended without an outcome: " + end,
          .hint = "its last words are in " + ShortenPath(run_directory.path() / "agent.log") +
                  "; the daemons end the ranks"};
}

// Records and shows a failure for which there is no agent.
int Refuse(const Verdict& verdict, RunDirectory* run_directory, Front* front) {
  static_cast<void>(run_directory->WriteVerdict(verdict));
  return front->ShowVerdict(verdict);
}

}  // namespace

StatusOr<int> RunJob(const JobPlan& plan, const Program& program, RunDirectory* run_directory,
                     std::function<std::string(bool failed)> after) {
  const bool reads_input = !plan.purpose.built_in && HasInput(STDIN_FILENO);
  std::optional<AgentProcess> agent;
  Front front({.console = MakeConsoleOptions(plan, reads_input),
               .run_directory = run_directory->path(),
               .exit_codes = plan.flags.exit_codes,
               .reads_input = reads_input,
               .detach_after = plan.flags.detach ? plan.world.world_size() : 0,
               .await_successor = [&agent] { return agent->AwaitSuccessor(); },
               .kill_agent = [&agent] { agent->Kill(); }});
  StatusOr<AgentProcess> started = AgentProcess::Start({.plan = plan,
                                                        .program = program,
                                                        .run_directory = run_directory,
                                                        .reads_input = reads_input,
                                                        .after = std::move(after)});
  if (!started.ok()) return Refuse(MakeStartVerdict(started.status()), run_directory, &front);
  agent = *std::move(started);
  run_directory->LeaveLock();
  UniqueFd connection = agent->TakeConnection();
  if (const Status begun = front.Begin(); !begun.ok()) {
    connection.Reset();  // without its front the agent ends the job
    static_cast<void>(agent->AwaitEnd());
    return Refuse(MakeStartVerdict(begun), run_directory, &front);
  }
  if (const auto status = front.Run(std::move(connection))) {
    // It has closed the connection, so that it only exits: nothing of a job outlives dsrun.
    if (!front.detached()) static_cast<void>(agent->AwaitEnd());
    return *status;
  }
  return Refuse(MakeAgentVerdict(agent->AwaitEnd(), *run_directory), run_directory, &front);
}

}  // namespace ds::cli
