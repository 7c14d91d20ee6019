#pragma once

// The `zero_optimization.zenflow` section of a ds_config. Its presence switches ZenFlow on.

#include <span>

#include "runtime/config/check/rule.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

std::span<const Rule> ZenFlowRules();
bool ZenFlowOmitsKey(const Values& values, Key key);
// Call it after FillZero. Requires values without errors.
void FillZenFlow(const Values& values, DsConfig* config);

}  // namespace ds::config
