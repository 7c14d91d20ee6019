#pragma once

// The `zero_optimization` section of a ds_config.

#include <cstdint>
#include <span>

#include "runtime/config/check/rule.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

std::span<const Rule> ZeroRules();
// Returns true if a resolved config must omit the key: DeepSpeed 0.19.8 rejects it, or its presence
// changes something.
bool ZeroOmitsKey(const Values& values, Key key);
// Requires values without errors.
void FillZero(const Values& values, DsConfig* config);

// Returns true if the key is written out, or if its value differs from the registry's default. For
// keys with a default of the runtime's own: only then is the key's value used.
bool IsChosen(const Values& values, Key key);

// Returns the stage in force.
std::int64_t ZeroStage(const Values& values);

}  // namespace ds::config
