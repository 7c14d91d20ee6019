#pragma once

// The commands of dsrun: one row each; `dsrun help`, the dispatch and "did you mean" read the
// table. What a row runs lives in commands/<name>_command.cc.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags/launch_flags.h"
#include "runtime/base/status.h"

namespace ds::cli {

// The words that a command is given.
struct Invocation {
  LaunchFlags launch;                     // flags in front of the command's name
  std::vector<std::string> arguments;     // everything behind the name
  std::vector<std::string> command_line;  // the whole of it, argv[0] included
};

// The exit status of dsrun (runtime/base/exit_codes.h). An error Status is printed as "dsrun:
// message" and ends with kExitUsage: it means that nothing has been started. Anything else a
// command reports itself.
using CommandHandler = StatusOr<int> (*)(const Invocation& invocation);

inline constexpr std::string_view kAllLaunchFlags = "*";

struct Command {
  std::string_view name;
  std::string_view arguments;  // for the help: "[flags] CONFIG"
  std::string_view summary;    // one line
  CommandHandler run;
  // Those that mean something in front of its name: "--hostfile --run_dir", or all. Others are
  // refused there, but for --log_level and --exit_codes, which are dsrun's own.
  std::string_view launch_flags;
};

std::span<const Command> Commands();

// The rows run these; each says beside its definition what it does.
StatusOr<int> TrainCommand(const Invocation& invocation);
StatusOr<int> ResumeCommand(const Invocation& invocation);
StatusOr<int> RunCommand(const Invocation& invocation);
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

// Null when there is none of that name.
const Command* FindCommand(std::string_view name);

}  // namespace ds::cli
