#pragma once

// CommandFlags: what a command takes, as its own parser says it: for completions and for the manual
// page, which so cannot drift from what is parsed.
//
// Threads: one at a time; standard output is not to be written meanwhile.

#include <string>
#include <vector>

#include "cli/commands/command_table.h"
#include "cli/flags/flag_parser.h"

namespace ds::cli {

// Tells the flags in front of a command.
FlagDescriptions DescribeLaunchFlags();

// Tells those of a command; the launch flags that it takes behind its name are among them.
FlagDescriptions DescribeCommand(const Command& command);

}  // namespace ds::cli
