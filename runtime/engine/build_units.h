#pragma once

// The model as ZeRO sees it.

#include <vector>

#include "runtime/models/block.h"
#include "runtime/optim/groups/parameter_groups.h"
#include "runtime/zero/parameter_unit.h"

namespace ds::engine {

// One unit per block, parameters under their full names in the order they were registered, each in
// the group that `group_of` says.
std::vector<zero::ParameterUnit> BuildUnits(
    const BlockList& model, const optim::ParameterGrouper& group_of = optim::OneGroup);

}  // namespace ds::engine
