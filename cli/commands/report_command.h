#pragma once

// dsrun report [--json]: this host's environment, judged.

#include "cli/commands/command_table.h"

namespace ds::cli {

// kExitOk, or kExitPreflight when something would stop a job.
StatusOr<int> ReportCommand(const Invocation& invocation);

}  // namespace ds::cli
