#pragma once

// The `scheduler` section of a ds_config. schedule.cc has the table of all schedules.

#include <span>

#include "runtime/config/check/rule.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

std::span<const Rule> SchedulerRules();
// Requires values without errors.
void FillScheduler(const Values& values, DsConfig* config);
// Parameters that the schedule does not take.
bool SchedulerLeavesOut(const Values& values, Key key);

}  // namespace ds::config
