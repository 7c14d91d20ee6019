#pragma once

// TranslateSchedule converts Trainer's lr_scheduler_type, its kwargs and its warm-up into a
// `scheduler` section with the rates of transformers' get_scheduler.
//
// The end of a decay is "auto", the steps of the run, as in Trainer. A warm-up given as a fraction
// of all steps becomes a flag, which the run resolves when it knows them.

#include <optional>

#include "cli/translate/given_arguments.h"
#include "cli/translate/translation.h"

namespace ds::cli {

// Use this for a training without a scheduler in its ds_config.
void TranslateSchedule(GivenArguments* arguments, Translation* translation);

// Use this for a training with a scheduler in its ds_config, where the warm-up may be "auto".
void TranslateWarmup(GivenArguments* arguments, Translation* translation);

}  // namespace ds::cli
