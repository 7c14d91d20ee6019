#include "cli/command_table.h"

#include "cli/commands/checkpoint_command.h"
#include "cli/commands/help_command.h"
#include "cli/commands/plan_command.h"
#include "cli/commands/run_command.h"
#include "cli/commands/version_command.h"

namespace ds::cli {
namespace {

constexpr Command kCommands[] = {
    {"run", "-- PROGRAM", "Run a program on every rank", RunCommand},
    {"plan", "[--json] -- PROGRAM", "Show which ranks would run where; start nothing", PlanCommand},
    {"checkpoint", "verify|list DIR", "Check the checkpoints in DIR, or list them",
     CheckpointCommand},
    {"help", "[COMMAND]", "Show what dsrun does, or one command's flags", HelpCommand},
    {"version", "", "Show the version", VersionCommand},
};

}  // namespace

std::span<const Command> Commands() { return kCommands; }

const Command* FindCommand(std::string_view name) {
  for (const Command& command : kCommands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

}  // namespace ds::cli
