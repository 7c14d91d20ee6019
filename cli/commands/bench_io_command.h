#pragma once

// dsrun bench io PATH: how fast this host's drives take what is offloaded, as ds_io and
// ds_nvme_tune find out.

#include "cli/commands/command_table.h"

namespace ds::cli {

// Runs `bench io`, whose first argument is "io".
StatusOr<int> BenchIoCommand(const Invocation& invocation);

}  // namespace ds::cli
