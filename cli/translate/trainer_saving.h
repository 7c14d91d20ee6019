#pragma once

// TranslateSaving converts Trainer's checkpoint and evaluation arguments into flags of `train`:
// intervals, retention, and selection of the best model.

#include <cstdint>
#include <optional>

#include "cli/translate/given_arguments.h"
#include "cli/translate/translation.h"

namespace ds::cli {

// `steps` is the number of steps of the full training; absent if unknown.
void TranslateSaving(std::optional<std::int64_t> steps, GivenArguments* arguments,
                     Translation* translation);

}  // namespace ds::cli
