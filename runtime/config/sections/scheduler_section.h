#pragma once

// The `scheduler` section of a ds_config: which parameters each schedule takes, what they are when
// not given, and the Schedule they describe.

#include <cstddef>
#include <span>

#include "runtime/config/check/rule.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

std::span<const Rule> SchedulerRules();
// Requires values without errors.
void FillScheduler(const Values& values, DsConfig* config);

// The schedule of parameter group `group`, which counts where the parameters have lists only.
Schedule FillSchedule(const Values& values, std::size_t group);

}  // namespace ds::config
