#pragma once

// Lists the sections of a ds_config in the order in which their rules run and their values are
// filled in.

#include <vector>

#include "runtime/config/check/rule.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

std::vector<Rule> AllRules();

void ApplyRules(RuleContext& context);

// Returns true if a resolved config should omit `key`.
bool OmitsKey(const Values& values, Key key);

// Returns the DsConfig described by `values`. Requires that all rules have been applied without an
// error.
DsConfig FillConfig(const Values& values);

}  // namespace ds::config
