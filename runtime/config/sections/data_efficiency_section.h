#pragma once

// The sections `curriculum_learning` and `data_efficiency` of a ds_config: how many tokens of its
// samples a step sees (config/curriculum.h).

#include <span>

#include "runtime/config/check/rule.h"
#include "runtime/config/curriculum.h"

namespace ds::config {

std::span<const Rule> DataEfficiencyRules();
// Requires values without errors.
DataEfficiency ReadDataEfficiency(const Values& values);
// Parameters of what is off, and of shapes that the schedule does not have.
bool DataEfficiencyLeavesOut(const Values& values, Key key);

}  // namespace ds::config
