#pragma once

// Checks and reads data_efficiency.data_sampling.dynamic_batching.

#include <optional>

#include "runtime/config/check/values.h"
#include "runtime/config/dynamic_batching.h"
#include "runtime/config/sections/sections.h"

namespace ds::config {

// A rule of the section data_efficiency.
void DynamicBatchingIsDefined(RuleContext& context);

// Returns nothing where it is off. Requires values without errors.
std::optional<DynamicBatching> ReadDynamicBatching(const Values& values);

}  // namespace ds::config
