#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"
#include "cli/flags/launch_flags.h"
#include "cli/front/run_job.h"
#include "cli/job/job_plan.h"
#include "cli/job/program.h"
#include "cli/job/run_directory.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/files.h"
#include "runtime/base/suggest.h"

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

std::vector<std::string> ListScripts(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".py") names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Rejects a script that does not exist if all ranks run on this host. Other hosts have files of
// their own, which their daemons check.
Status CheckScript(const JobPlan& plan, const std::string& script) {
  for (int number = 0; number < plan.host_count(); ++number) {
    if (plan.host(number).remote) return OkStatus();
  }
  const std::filesystem::path path =
      (std::filesystem::path(plan.host(0).working_directory) / script).lexically_normal();
  if (script.empty() || ::access(path.c_str(), F_OK) == 0) return OkStatus();
  return InvalidArgumentError(
      ErrnoError(errno, ShortenPath(path)).message() +
      DidYouMean(path.filename().string(), ListScripts(path.parent_path())));
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

  DS_RETURN_IF_ERROR(CheckEngine(flags, words));
  DS_ASSIGN_OR_RETURN(JobRequest request,
                      GatherJobRequest(words[0], flags, invocation.command_line));
  flags.python = FindInterpreter(flags.python, request.exports, request.shell);
  JobPlan plan = PlanJob(std::move(request));
  const RankProgram program = MakeUserProgram(flags, words);
  DS_RETURN_IF_ERROR(CheckScript(plan, program.script));
  DS_ASSIGN_OR_RETURN(const std::unique_ptr<RunDirectory> run_directory,
                      CreateRunDirectory(flags, &plan.job_id, &plan.run_directory));
  // kAtomic, because only `dsrun train` jobs can be resumed after a crash of the machine.
  DS_RETURN_IF_ERROR(
      run_directory->WriteJob(DescribeJob("run", plan, program.argv), Durability::kAtomic));
  return RunJob(plan, SameProgram(program), run_directory.get());
}

}  // namespace ds::cli
