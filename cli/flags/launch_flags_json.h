#pragma once

// Launch flags as job.json keeps them, so that `resume` starts from what the job was started with.

#include <nlohmann/json_fwd.hpp>

#include "cli/flags/launch_flags.h"
#include "runtime/base/status.h"

namespace ds::cli {

nlohmann::ordered_json ToJson(const LaunchFlags& flags);

// The inverse. Wrong types and unknown names are errors; what is missing keeps its default.
StatusOr<LaunchFlags> ReadLaunchFlags(const nlohmann::ordered_json& json);

}  // namespace ds::cli
