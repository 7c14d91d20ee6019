#pragma once

// MakeFillUnit: where each unit's first values come from.

#include <vector>

#include "runtime/base/status.h"
#include "runtime/engine/engine.h"
#include "runtime/models/block.h"
#include "runtime/zero/sharded_model.h"

namespace ds::engine {

// EngineOptions::read_values first; then what the user's own modules have, rank 0's of them, or
// what the block's factory makes; then Block::Initialize's. Asks before ZeRO moves the parameters,
// when it can be seen which of them have values. Arguments outlive the result. Refuses a block of
// which only some parameters have values.
StatusOr<zero::FillUnit> MakeFillUnit(const BlockList& model,
                                      const std::vector<zero::ParameterUnit>& units,
                                      const EngineOptions& options);

}  // namespace ds::engine
