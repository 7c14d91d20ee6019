#pragma once

// The `zero_optimization` section of a ds_config.

#include <cstdint>
#include <span>

#include "runtime/config/check/rule.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

std::span<const Rule> ZeroRules();
// The key must not stand in a resolved config: DeepSpeed 0.19.8 refuses it, or it changes something
// by being there.
bool ZeroLeavesOut(const Values& values, Key key);
// Requires values without errors.
void FillZero(const Values& values, DsConfig* config);

// A key is written out, or somebody has changed its value: that of what the runtime has defaults of
// its own for is then meant.
bool IsMeant(const Values& values, Key key);

// The stage in force.
std::int64_t ZeroStage(const Values& values);

}  // namespace ds::config
