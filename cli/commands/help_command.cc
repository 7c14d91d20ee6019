#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "cli/commands/command_flags.h"
#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"
#include "cli/flags/launch_flags.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/suggest.h"

namespace ds::cli {
namespace {

std::string Overview() {
  std::ostringstream text;
  text << "Start and train on many ranks, on one host or many.\n\nCommands:\n";
  for (const Command& command : Commands()) {
    text << "  " << std::left << std::setw(12) << command.name << command.summary << "\n";
  }
  text << "\nEverything behind COMMAND or PROGRAM belongs to it. A program that has a command's "
          "name is started with: dsrun [launch flags] run -- PROGRAM\n";
  text << "\nExit status: a failing rank's own, 128 + N when signal N killed it, or (with "
          "--exit_codes "
          "distinct):\n";
  for (const ExitStatusRow& row : ExitStatusTable()) {
    text << "  " << std::left << std::setw(4) << row.status << std::setw(6)
         << "(" + std::to_string(row.distinct_status) + ")" << row.meaning << "\n";
  }
  text << "A program's own 240 to 247 is 240 then.\n";
  return text.str();
}

void PrintOverview() {
  LaunchFlags flags;
  FlagParser parser("[launch flags] COMMAND|PROGRAM [arguments]", Overview());
  AddLaunchFlags(&parser, &flags);
  std::cout << parser.app().help() << std::flush;
}

}  // namespace

// dsrun help [COMMAND]; --man instead of a command prints the manual page.
StatusOr<int> HelpCommand(const Invocation& invocation) {
  if (invocation.arguments.empty() || invocation.arguments[0] == "help") {
    PrintOverview();
    return kExitOk;
  }
  const std::string& name = invocation.arguments[0];
  if (name == "--man") {
    std::cout << ManualPage() << std::flush;
    return kExitOk;
  }
  const Command* command = FindCommand(name);
  if (command == nullptr) {
    std::vector<std::string> names;
    for (const Command& known : Commands()) names.emplace_back(known.name);
    return InvalidArgumentError("no command '" + name + "'" + DidYouMean(name, names));
  }
  return command->run(Invocation{.arguments = {"--help"}});
}

}  // namespace ds::cli
