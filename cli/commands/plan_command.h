#pragma once

#include "cli/commands/command_table.h"

namespace ds::cli {

StatusOr<int> PlanCommand(const Invocation& invocation);

}  // namespace ds::cli
