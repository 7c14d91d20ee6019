#pragma once

// FindSharedMemory finds parameters that share memory, fully or partly. Each parameter gets its own
// range of a flat buffer, so shared parameters would become two.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/zero/parameter_unit.h"

namespace ds::zero {

// Returns the names of two parameters that have an element in common, even if they begin at
// different addresses; the first one in the model comes first. Views of one storage that do not
// overlap are distinct, and so are parameters without data.
std::optional<std::pair<std::string, std::string>> FindSharedMemory(
    const std::vector<ParameterUnit>& units);

}  // namespace ds::zero
