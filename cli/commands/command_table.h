#pragma once

// The table of dsrun's commands, one row each. `dsrun help`, the dispatch and "did you mean" read
// it. The handler of a row is in commands/<name>_command.cc.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags/launch_flags.h"
#include "runtime/base/status.h"

namespace ds::cli {

// The command line of a command.
struct Invocation {
  LaunchFlags launch;                     // flags before the command's name
  std::vector<std::string> arguments;     // all words after the name
  std::vector<std::string> command_line;  // the full command line, including argv[0]
};

// Returns the exit status of dsrun (runtime/base/exit_codes.h). An error Status means that nothing
// has started; it is printed as "dsrun: message" and the status is kExitUsage. A command reports
// all other errors itself.
using CommandHandler = StatusOr<int> (*)(const Invocation& invocation);

inline constexpr std::string_view kAllLaunchFlags = "*";

struct Command {
  std::string_view name;
  std::string_view arguments;  // for the help: "[flags] CONFIG"
  std::string_view summary;    // one line
  CommandHandler run;
  // Launch flags allowed before the name: "--hostfile --run_dir", or all. Others are rejected
  // there, except --log_level and --exit_codes, which belong to dsrun.
  std::string_view launch_flags;
};

std::span<const Command> Commands();

// Returns whether the list of a command that does not take all launch flags has this one. `name` is
// the first long name, with its dashes.
bool TakesLaunchFlag(const Command& command, std::string_view name);

// The handlers of the rows; each is documented at its definition.
StatusOr<int> TrainCommand(const Invocation& invocation);
StatusOr<int> ResumeCommand(const Invocation& invocation);
StatusOr<int> RunCommand(const Invocation& invocation);
StatusOr<int> PsCommand(const Invocation& invocation);
StatusOr<int> StatusCommand(const Invocation& invocation);
StatusOr<int> LogsCommand(const Invocation& invocation);
StatusOr<int> EventsCommand(const Invocation& invocation);
StatusOr<int> AttachCommand(const Invocation& invocation);
StatusOr<int> DetachCommand(const Invocation& invocation);
StatusOr<int> StopCommand(const Invocation& invocation);
StatusOr<int> PlanCommand(const Invocation& invocation);
StatusOr<int> BenchCommand(const Invocation& invocation);
StatusOr<int> ReportCommand(const Invocation& invocation);
StatusOr<int> CheckpointCommand(const Invocation& invocation);
StatusOr<int> CheckCommand(const Invocation& invocation);
StatusOr<int> ElasticCommand(const Invocation& invocation);
StatusOr<int> TokenizeCommand(const Invocation& invocation);
StatusOr<int> GenerateCommand(const Invocation& invocation);
StatusOr<int> TranslateCommand(const Invocation& invocation);
StatusOr<int> EstimateCommand(const Invocation& invocation);
StatusOr<int> CompletionCommand(const Invocation& invocation);
StatusOr<int> HelpCommand(const Invocation& invocation);
StatusOr<int> VersionCommand(const Invocation& invocation);

// Returns null for an unknown name.
const Command* FindCommand(std::string_view name);

// Returns "; did you mean 'x'?" for a word that names neither a command nor one of the pages, or
// "; see dsrun help" if no name is near.
std::string SuggestCommand(std::string_view word, const std::vector<std::string>& pages = {});

}  // namespace ds::cli
