#pragma once

// PlanTraining checks a job of `train` without starting it, for `plan`.

#include <optional>
#include <string>
#include <vector>

#include "cli/commands/command_table.h"
#include "cli/flags/launch_flags.h"
#include "runtime/base/status.h"

namespace ds::cli {

struct PlannedTraining {
  LaunchFlags launch;                // with the flags after the command's name
  std::vector<std::string> notices;  // of train, for the user
};

// `invocation` is that of `train`. Returns train's errors, and nullopt if the flags only ask for
// help, which is printed. Starts nothing and writes no file.
StatusOr<std::optional<PlannedTraining>> PlanTraining(const Invocation& invocation);

}  // namespace ds::cli
