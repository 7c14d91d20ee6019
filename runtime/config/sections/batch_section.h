#pragma once

// The three batch sizes of a ds_config.

#include <span>

#include "runtime/config/check/rule.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

std::span<const Rule> BatchRules();
// Requires values without errors.
void FillBatch(const Values& values, DsConfig* config);

}  // namespace ds::config
