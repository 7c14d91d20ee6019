#pragma once

#include "cli/commands/command_table.h"

namespace ds::cli {

StatusOr<int> HelpCommand(const Invocation& invocation);

}  // namespace ds::cli
