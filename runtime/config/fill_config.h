#pragma once

// The step from checked values to the struct that the runtime reads.

#include "runtime/config/ds_config.h"
#include "runtime/config/values.h"

namespace ds::config {

// Requires that reading and rules found no error.
DsConfig FillConfig(const Values& values);

}  // namespace ds::config
