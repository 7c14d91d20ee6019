#pragma once

#include "cli/commands/command_table.h"

namespace ds::cli {

// dsrun help [COMMAND]; --man instead of a command prints the manual page.
StatusOr<int> HelpCommand(const Invocation& invocation);

}  // namespace ds::cli
