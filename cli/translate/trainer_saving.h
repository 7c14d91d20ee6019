#pragma once

// TranslateSaving: Trainer's checkpoints and evaluations as flags of `train`: how often, which
// checkpoints stay, and the best model.

#include <cstdint>
#include <optional>

#include "cli/translate/given_arguments.h"
#include "cli/translate/translation.h"

namespace ds::cli {

// `steps` are those of the whole training; absent: not known.
void TranslateSaving(std::optional<std::int64_t> steps, GivenArguments* arguments,
                     Translation* translation);

}  // namespace ds::cli
