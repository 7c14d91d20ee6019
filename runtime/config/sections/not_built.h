#pragma once

// Rules for what the keys of features that are not built say together: their contradictions are
// named all the same, so that the rule is there with the feature.
//
// Where DeepSpeed contradicts itself by defect rather than by design (Muon with reduce_scatter,
// which is on by default) there is no rule; tests/unit/config/reference_rules_test.cc goes through
// DeepSpeed's checks line by line and says what became of each.

#include <span>

#include "runtime/config/check/rule.h"

namespace ds::config {

std::span<const Rule> NotBuiltRules();

}  // namespace ds::config
