#pragma once

// `zero_optimization.offload_param` and `offload_optimizer`, and the `aio` section of a ds_config.

#include <span>

#include "runtime/config/check/rule.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

std::span<const Rule> OffloadRules();
// Requires values without errors.
void FillOffload(const Values& values, DsConfig* config);

}  // namespace ds::config
