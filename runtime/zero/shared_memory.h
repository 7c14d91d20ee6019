#pragma once

// FindSharedMemory looks for parameters that are, in whole or in part, the same memory: each gets a
// place of its own in a flat buffer, and what was one would become two.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/zero/parameter_unit.h"

namespace ds::zero {

// The names of two parameters that have an element in common, wherever each of them begins, the one
// that the model has first in front. Views of one storage that have none are two, as are parameters
// without data.
std::optional<std::pair<std::string, std::string>> FindSharedMemory(
    const std::vector<ParameterUnit>& units);

}  // namespace ds::zero
