#pragma once

// The `activation_checkpointing` section of a ds_config.

#include "runtime/config/check/values.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

// Requires values without errors.
void FillActivation(const Values& values, DsConfig* config);

}  // namespace ds::config
