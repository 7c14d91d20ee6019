#pragma once

// Conversion of launch flags to and from job.json. `resume` starts with the flags that it reads
// there.

#include <nlohmann/json_fwd.hpp>

#include "cli/flags/launch_flags.h"
#include "runtime/base/status.h"

namespace ds::cli {

nlohmann::ordered_json ToJson(const LaunchFlags& flags);

// The inverse of ToJson. Wrong types and unknown names are errors; missing flags keep their
// defaults.
StatusOr<LaunchFlags> ReadLaunchFlags(const nlohmann::ordered_json& json);

}  // namespace ds::cli
