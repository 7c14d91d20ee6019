#pragma once

// What the optimizer.* keys say together (rules.h).

#include "runtime/config/rules.h"

namespace ds::config {

// A parameter that another optimizer has is refused, as its constructor would.
void OptimizersTakeTheirOwnParameters(RuleContext& context);
// One key, several optimizers, several defaults.
void OptimizersHaveTheirOwnDefaults(RuleContext& context);
// Nesterov's momentum needs a momentum, undamped.
void NesterovNeedsMomentum(RuleContext& context);

}  // namespace ds::config
