#pragma once

// dsrun bench memory: how fast this host's memory is read and written in place, by thread count: a
// bound for the updates of optimizers on the host.

#include "cli/commands/command_table.h"

namespace ds::cli {

// Runs `bench memory`, whose first argument is "memory".
StatusOr<int> BenchMemoryCommand(const Invocation& invocation);

}  // namespace ds::cli
