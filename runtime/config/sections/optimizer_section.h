#pragma once

// The `optimizer` section of a ds_config: the parameters of each optimizer and their defaults.

#include <span>
#include <string>

#include "runtime/config/check/rule.h"
#include "runtime/config/ds_config.h"

namespace ds::config {

std::span<const Rule> OptimizerRules();
// Returns the chosen optimizer; null where none is chosen, or an unknown one.
const OptimizerType* OptimizerTypeOf(const Values& values);
// Returns true if the chosen optimizer accepts the parameter; false where none is chosen.
bool OptimizerTakes(const Values& values, Key key);
// Lists the optimizers that have the property: "A, B or C".
std::string ListOptimizers(bool OptimizerType::*property);
// Requires values without errors.
void FillOptimizer(const Values& values, DsConfig* config);
// Returns true for parameters that the optimizer does not accept or that are not set: DeepSpeed
// passes all parameters that are present to the constructor.
bool OptimizerOmitsKey(const Values& values, Key key);

}  // namespace ds::config
