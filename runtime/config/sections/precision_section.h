#pragma once

// Precision: fp16, bf16, torch_autocast, and the dtypes in which gradients are accumulated and
// reduced.

#include <span>

#include "runtime/config/check/rule.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

std::span<const Rule> PrecisionRules();
// Requires values without errors.
void FillPrecision(const Values& values, DsConfig* config);
// A key that a newer DeepSpeed would not read.
bool PrecisionLeavesOut(const Values& values, Key key);

}  // namespace ds::config
