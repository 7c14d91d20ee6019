#pragma once

// The sections of a ds_config in the order in which their rules run and their values are filled in.

#include <vector>

#include "runtime/config/check/rule.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

std::vector<Rule> AllRules();

void ApplyRules(RuleContext& context);

// Says whether a config with the same values is better written without `key`.
bool LeavesOut(const Values& values, Key key);

// The DsConfig that `values` describe. Requires that all rules have been applied without an error.
DsConfig FillConfig(const Values& values);

}  // namespace ds::config
