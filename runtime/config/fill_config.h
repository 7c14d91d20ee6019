#pragma once

// The step from checked values to the struct that the runtime reads.

#include "runtime/config/check/values.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

// Requires that reading and rules found no error.
DsConfig FillConfig(const Values& values);

}  // namespace ds::config
