#pragma once

// What this build of dsrank and this machine can do, for `dsrun report` and the preflight.

#include <nlohmann/json.hpp>

#include "runtime/device/isa_probe.h"

namespace ds::rank {

// {"dsrun","libtorch","compiler","cpu_capability","threads","amx":{...},"cuda":{"built","available"}}
nlohmann::ordered_json Facts(const device::IsaReport& isa);

}  // namespace ds::rank
