#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"
#include "cli/flags/launch_flags.h"
#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/job/run_directory.h"
#include "cli/session/job_session.h"
#include "runtime/base/exit_codes.h"

namespace ds::cli {
namespace {

// Parses the launch flags after `run` into `flags`. The result's `rest` is the program with its
// arguments.
StatusOr<FlagParser::Result> ParseOwnFlags(const std::vector<std::string>& words,
                                           LaunchFlags* flags) {
  // Usually there are no flags, and creating a parser takes longer than planning the job.
  if (words.empty() || !IsFlag(words[0])) return FlagParser::Result{.rest = words};
  FlagParser parser("[launch flags] run [launch flags] -- PROGRAM [arguments]",
                    "Run a program on every rank: an executable, or a Python script (*.py).");
  AddLaunchFlags(&parser, flags);
  return parser.Parse(words, FlagParser::RemainingWords::kProgram);
}

}  // namespace

StatusOr<int> RunCommand(const Invocation& invocation) {
  LaunchFlags flags = invocation.launch;
  DS_ASSIGN_OR_RETURN(FlagParser::Result parsed, ParseOwnFlags(invocation.arguments, &flags));
  if (parsed.help_shown) return kExitOk;
  DS_RETURN_IF_ERROR(CheckLaunchFlags(flags));
  std::vector<std::string> words = std::move(parsed.rest);
  if (!words.empty() && words[0] == "--") words.erase(words.begin());
  if (words.empty()) return InvalidArgumentError("run: no program given; see dsrun run --help");

  DS_ASSIGN_OR_RETURN(JobRequest request,
                      GatherJobRequest(words[0], flags, invocation.command_line));
  const JobPlan plan = PlanJob(std::move(request));
  const RankProgram program = MakeUserProgram(flags, words);
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<RunDirectory> run_directory,
                      RunDirectory::Create(plan.run_directory));
  // kAtomic, because only `dsrun train` jobs can be resumed after a crash of the machine.
  DS_RETURN_IF_ERROR(
      run_directory->WriteJob(DescribeJob("run", plan, program.argv), Durability::kAtomic));
  return RunJob(plan, SameProgram(program), run_directory.get());
}

}  // namespace ds::cli
