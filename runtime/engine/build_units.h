#pragma once

// The model as ZeRO sees it.

#include <vector>

#include "runtime/models/block.h"
#include "runtime/zero/parameter_unit.h"

namespace ds::engine {

// One unit per block, parameters under their full names in the order they were registered.
std::vector<zero::ParameterUnit> BuildUnits(const BlockList& model);

}  // namespace ds::engine
