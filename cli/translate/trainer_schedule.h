#pragma once

// TranslateSchedule: Trainer's lr_scheduler_type and warm-up as a `scheduler` section.
//
// transformers' linear and cosine without a warm-up are PyTorch's LinearLR and CosineAnnealingLR.
// With one they are DeepSpeed's WarmupDecayLR and WarmupCosineLR, whose warm-up begins one update
// later (the first two updates have a rate of 0).

#include <cstdint>
#include <optional>

#include "cli/translate/given_arguments.h"
#include "cli/translate/translation.h"

namespace ds::cli {

// `steps` are those of the whole training; absent: not known.
void TranslateSchedule(std::optional<std::int64_t> steps, GivenArguments* arguments,
                       Translation* translation);

// Nothing when the warm-up is a share of steps that are not known, which is remarked.
std::optional<std::int64_t> WarmupSteps(std::optional<std::int64_t> steps,
                                        GivenArguments* arguments);

}  // namespace ds::cli
