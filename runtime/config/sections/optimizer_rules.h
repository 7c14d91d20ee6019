#pragma once

// What the optimizer.* keys say together (rules.h).

#include "runtime/config/rules.h"

namespace ds::config {

// A parameter that another optimizer has is refused, as its constructor would.
void OptimizersTakeTheirOwnParameters(RuleContext& context);
// One key, several optimizers, several defaults.
void OptimizersHaveTheirOwnDefaults(RuleContext& context);
// Muon's rate and that of the parameters AdamW updates: each its own, else lr, else a default. The
// schedule's rate is Muon's; AdamW's follows in proportion.
void MuonHasTwoRates(RuleContext& context);
// Nesterov's momentum needs a momentum, undamped.
void NesterovNeedsMomentum(RuleContext& context);

// What the mup package calls set_base_shapes.
void MuOptimizersNeedBaseShapes(RuleContext& context);
// LAMB's trust ratio and 1-bit LAMB's factor lie between their limits.
void LambLimitsAreInOrder(RuleContext& context);

}  // namespace ds::config
