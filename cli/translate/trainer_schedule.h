#pragma once

// TranslateSchedule: Trainer's lr_scheduler_type, its kwargs and its warm-up as a `scheduler`
// section, whose rates are those of transformers' get_scheduler.
//
// The end of a decay is "auto", the steps of the run: Trainer counts them as well. A warm-up that
// is a share of all steps becomes a flag, which the run resolves once it knows them.

#include <optional>

#include "cli/translate/given_arguments.h"
#include "cli/translate/translation.h"

namespace ds::cli {

// For a training whose ds_config has no scheduler.
void TranslateSchedule(GivenArguments* arguments, Translation* translation);

// For a training whose ds_config has one: its warm-up may be "auto".
void TranslateWarmup(GivenArguments* arguments, Translation* translation);

}  // namespace ds::cli
