#pragma once

#include "cli/commands/command_table.h"

namespace ds::cli {

// dsrun elastic -c CONFIG [-w N] [--json]: which train batch size the config's elasticity section
// leads to, the numbers of GPUs it suits, and the micro-batch size for N of them.
StatusOr<int> ElasticCommand(const Invocation& invocation);

}  // namespace ds::cli
