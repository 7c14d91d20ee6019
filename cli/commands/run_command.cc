#include "cli/commands/run_command.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "cli/flags/flag_parser.h"
#include "cli/job/gather_exports.h"
#include "cli/job/job_id.h"
#include "cli/plan/launch_plan.h"
#include "cli/session/job_description.h"
#include "cli/session/job_session.h"
#include "runtime/base/clock.h"
#include "runtime/base/exit_codes.h"

namespace ds::cli {
namespace {

// The words behind `run`, without its flags, which go to `flags`.
StatusOr<FlagParser::Result> ParseOwnFlags(const std::vector<std::string>& words,
                                           LaunchFlags* flags) {
  // Mostly there are none, and to make a parser for them takes longer than to plan the job.
  if (words.empty() || !IsFlag(words[0])) return FlagParser::Result{.rest = words};
  FlagParser parser("[launch flags] run [launch flags] -- PROGRAM [arguments]",
                    "Run a program on every rank: an executable, or a Python script (*.py).");
  AddLaunchFlags(&parser, flags);
  return parser.Parse(words, FlagParser::Rest::kProgram);
}

// The place of --local_rank=N: right behind the program, as deepspeed puts it.
int LocalRankPosition(const LaunchFlags& flags, std::size_t argv_size, std::size_t words_size) {
  return flags.pass_local_rank ? static_cast<int>(argv_size - words_size) + 1 : 0;
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

  JobSetup setup{.job_id = MakeJobId(words[0], Clock::System().UnixNanos()),
                 .flags = flags,
                 .forward_input = true};
  DS_ASSIGN_OR_RETURN(setup.plan, PlanFromThisHost(flags));
  DS_ASSIGN_OR_RETURN(GatheredExports exports, GatherExports(flags));
  setup.exports = std::move(exports.environment);
  setup.notices = std::move(exports.notices);
  const std::vector<std::string> argv = ProgramCommand(flags, words);
  setup.local_rank_position = LocalRankPosition(flags, argv.size(), words.size());
  setup.executable = argv[0];
  setup.script = ProgramScript(flags, words);
  setup.program = [&argv](int) -> StatusOr<RankProgram> { return RankProgram{.argv = argv}; };

  setup.run_directory = RunDirectoryPath(flags, setup.job_id);
  setup.open = [&]() -> StatusOr<std::unique_ptr<RunDirectory>> {
    nlohmann::ordered_json job = DescribeJob("run", setup, invocation.command_line);
    job["argv"] = DescribeWords(argv);
    DS_ASSIGN_OR_RETURN(std::unique_ptr<RunDirectory> run,
                        RunDirectory::Create(setup.run_directory));
    DS_RETURN_IF_ERROR(run->WriteJob(job, Durability::kWhole));
    return run;
  };
  return RunJob(setup);
}

}  // namespace ds::cli
