// dsrun: finds the command in argv and runs it.

#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <vector>

#include "cli/commands/command_flags.h"
#include "cli/commands/command_table.h"
#include "cli/commands/foreign_commands.h"
#include "cli/flags/flag_parser.h"
#include "cli/flags/launch_flags.h"
#include "cli/flags/report_error.h"
#include "cli/job/final_status.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/log.h"
#include "runtime/process/descriptor_table.h"
#include "runtime/process/exit_process.h"
#include "runtime/process/malloc_arena.h"

namespace ds::cli {
namespace {

// Before the constructors of gRPC, which open a descriptor and do not close it when it is number 0:
// a standard stream that nobody gave this process (`<&-`) would be that one.
[[gnu::constructor(101)]] void OpenStandardDescriptors() { FillStandardDescriptors(); }

bool IsOnPath(const std::string& name) {
  const char* path = ::getenv("PATH");
  std::string_view left = path == nullptr ? "" : path;
  while (!left.empty()) {
    const std::size_t end = left.find(':');
    const std::filesystem::path file = std::filesystem::path(left.substr(0, end)) / name;
    if (::access(file.c_str(), X_OK) == 0) return true;
    left = end == std::string_view::npos ? "" : left.substr(end + 1);
  }
  return false;
}

bool LooksLikeProgram(const std::string& word) {
  return word.find('/') != std::string::npos || word.ends_with(".py") ||
         ::access(word.c_str(), R_OK) == 0 || IsOnPath(word);
}

Status NeitherCommandNorProgram(const std::string& word) {
  return InvalidArgumentError("'" + word + "' is neither a command nor a program here" +
                              SuggestCommand(word));
}

// The command and its arguments for the words behind the launch flags.
StatusOr<const Command*> ChooseCommand(Invocation* invocation, std::vector<std::string> words) {
  if (words.empty()) {
    return InvalidArgumentError("no command or program given; see dsrun --help");
  }
  const Command* command = invocation->launch.module ? nullptr : FindCommand(words[0]);
  if (command != nullptr) {
    invocation->arguments.assign(words.begin() + 1, words.end());
    return command;
  }
  if (words[0] != "--" && !invocation->launch.module && !LooksLikeProgram(words[0])) {
    DS_RETURN_IF_ERROR(RefuseForeignCommand(words[0]));
    return NeitherCommandNorProgram(words[0]);
  }
  invocation->arguments = std::move(words);
  if (invocation->arguments[0] != "--") {
    invocation->arguments.insert(invocation->arguments.begin(), "--");
  }
  return FindCommand("run");
}

// Flags in front of a command that has no use for them are an error, not a wish.
Status CheckFlagsApply(const CLI::App& app, const Command& command) {
  if (command.launch_flags == kAllLaunchFlags) return OkStatus();
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    const std::string name = "--" + option->get_lnames().front();
    if (name == "--log_level" || name == "--exit_codes" || TakesLaunchFlag(command, name)) continue;
    return InvalidArgumentError(name + " is not valid before '" + std::string(command.name) +
                                "'; leave it out (flags of the command go after its name)");
  }
  return OkStatus();
}

bool Names(const FlagDescriptions& described, const std::string& flag) {
  return std::any_of(described.flags.begin(), described.flags.end(), [&](const auto& each) {
    return std::find(each.names.begin(), each.names.end(), flag) != each.names.end();
  });
}

// A flag of a command's in front of its name is no misspelt launch flag: says where it belongs, if
// that is what is wrong.
Status ExplainFlagPosition(const std::vector<std::string>& command_line, Status refusal) {
  const Command* command = nullptr;
  std::size_t index = 1;
  for (; index < command_line.size() && command == nullptr; ++index) {
    if (!IsFlag(command_line[index])) command = FindCommand(command_line[index]);
  }
  if (command == nullptr) return refusal;
  const FlagDescriptions own = DescribeCommand(*command);
  const FlagDescriptions launch = DescribeLaunchFlags();
  for (std::size_t i = 1; i < index; ++i) {
    const std::string flag = command_line[i].substr(0, command_line[i].find('='));
    if (!IsFlag(flag) || !Names(own, flag) || Names(launch, flag)) continue;
    return InvalidArgumentError(flag + " is a flag of '" + std::string(command->name) +
                                "': it belongs after that name");
  }
  return refusal;
}

StatusOr<int> Run(const std::vector<std::string>& command_line) {
  Invocation invocation{.command_line = command_line};
  FlagParser parser("[launch flags] COMMAND|PROGRAM [arguments]", "");
  CLI::App& app = parser.app();
  AddLaunchFlags(&parser, &invocation.launch);
  bool version = false;
  bool help = false;
  app.set_help_flag();
  app.add_flag("-h,--help", help);
  app.add_flag("--version", version);
  StatusOr<FlagParser::Result> parsed = parser.Parse({command_line.begin() + 1, command_line.end()},
                                                     FlagParser::RemainingWords::kProgram);
  if (!parsed.ok()) return ExplainFlagPosition(command_line, parsed.status());
  if (help) return FindCommand("help")->run(invocation);
  if (version) return FindCommand("version")->run(invocation);
  if (!invocation.launch.log_level.empty()) SetLogLevel(invocation.launch.log_level);
  DS_ASSIGN_OR_RETURN(const Command* command, ChooseCommand(&invocation, std::move(parsed->rest)));
  DS_RETURN_IF_ERROR(CheckFlagsApply(app, *command));
  // A command that starts ranks tells a program's own status from dsrun's where the job ends.
  const bool starts_ranks = command->launch_flags == kAllLaunchFlags;
  DS_ASSIGN_OR_RETURN(int status, command->run(invocation));
  if (status == kExitOk && !std::cout.flush()) {
    status = ReportError(ErrnoError(errno, "standard output"), kExitFailure);
  }
  return starts_ranks ? status
                      : FinalStatus(static_cast<ExitStatus>(status), invocation.launch.exit_codes);
}

// Reads a command line that cannot be parsed: what stands in front of the program says it.
ExitCodes WantedExitCodes(const std::vector<std::string>& command_line) {
  FlagParser parser("", "");
  LaunchFlags flags;
  AddLaunchFlags(&parser, &flags);
  for (std::size_t i = 1; i < command_line.size() && IsFlag(command_line[i]); ++i) {
    const std::string name = command_line[i].substr(0, command_line[i].find('='));
    const bool glued = name.size() < command_line[i].size();
    const CLI::Option* const option = parser.app().get_option_no_throw(name);
    const bool takes_next = TakesNextWord(parser.app(), command_line[i]);
    const std::string value = glued ? command_line[i].substr(name.size() + 1)
                              : takes_next && i + 1 < command_line.size() ? command_line[i + 1]
                                                                          : "";
    const bool is_wanted = option != nullptr && option->check_lname("exit_codes");
    if (is_wanted) return value == "distinct" ? ExitCodes::kDistinct : ExitCodes::kShell;
    i += takes_next ? 1 : 0;
  }
  return ExitCodes::kShell;
}

// Runs one dsrun command line (argv[0] included) and returns its exit status: launch flags first,
// then the word that names a command or a program. Errors are printed on stderr as "dsrun:
// message".
int RunCommandLine(const std::vector<std::string>& command_line) {
  try {
    const StatusOr<int> status = Run(command_line);
    if (status.ok()) return *status;
    return ReportError(status.status(), FinalStatus(kExitUsage, WantedExitCodes(command_line)));
  } catch (const std::system_error& error) {
    // Relative paths need a working directory, everything needs threads: when the one has been
    // removed, or there are no more of the others, this is how it shows.
    return ReportError(InternalError(error.what()),
                       FinalStatus(kExitFailure, WantedExitCodes(command_line)));
  }
}

}  // namespace
}  // namespace ds::cli

int main(int argc, char** argv) {
  ds::LimitMallocArenas();
  ds::InitLog("dsrun");
  ds::RaiseOpenFilesLimit();  // each host has connections, and each rank two logs
  ds::ReserveDescriptors(1024);
  // A file larger than `ulimit -f` is then an error with a message.
  std::signal(SIGXFSZ, SIG_IGN);
  const int status = ds::cli::RunCommandLine(std::vector<std::string>(argv, argv + argc));
  ds::ExitProcess(status);
}
