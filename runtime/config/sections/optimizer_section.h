#pragma once

// The `optimizer` section of a ds_config: which parameters each optimizer takes, their defaults.

#include <span>
#include <string>

#include "runtime/config/check/rule.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

std::span<const Rule> OptimizerRules();
// The optimizer that is chosen; null where none is, or none that there is.
const OptimizerType* OptimizerTypeOf(const Values& values);
// Tells whether it takes the parameter; false where none is chosen.
bool OptimizerTakes(const Values& values, Key key);
// The optimizers that have the property: "A, B or C".
std::string ListOptimizers(bool OptimizerType::*property);
// Requires values without errors.
void FillOptimizer(const Values& values, DsConfig* config);
// Parameters that the optimizer does not take, and those that nothing has set: DeepSpeed hands all
// that are there to the constructor.
bool OptimizerLeavesOut(const Values& values, Key key);

}  // namespace ds::config
