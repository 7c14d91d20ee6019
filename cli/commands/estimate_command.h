#pragma once

#include "cli/commands/command_table.h"

namespace ds::cli {

// dsrun estimate: what a model's states need in bytes on a GPU and on a host, under ZeRO 2 and 3
// and every kind of offload.
StatusOr<int> EstimateCommand(const Invocation& invocation);

}  // namespace ds::cli
