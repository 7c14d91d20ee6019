#pragma once

// The ds_config of a training job before validation: the user's own merged with its base, or the
// config of a resumed run.
//
// "auto" is kept here. CheckConfig resolves it once, after all layers are merged.

#include <string>
#include <vector>

#include "cli/train/share_folder.h"
#include "cli/train/train_flags.h"
#include "runtime/base/status.h"
#include "runtime/config/check/job_facts.h"
#include "runtime/config/file/check_config.h"
#include "runtime/config/file/config_text.h"
#include "runtime/config/train_job.h"

namespace ds::cli {

// Reads the user's ds_config. Without one, the base in `facts` applies alone. If the flags have no
// base (a recipe) either, that is the built-in config, which every flag overrides.
StatusOr<config::ConfigText> ReadJobConfig(const TrainFlags& flags, const ShareFolder& share,
                                           config::JobFacts* facts);

// Returns the config of an earlier run, updated by the given flags. Values of "auto" are resolved
// again for the current steps and model.
config::ConfigText RunsConfig(const config::TrainJob& job, const TrainFlags& flags);

// Checks a config with the schedule that the flags select, if any. The result has all warnings and
// errors.
config::CheckResult JudgeJobConfig(const config::ConfigText& config, const TrainFlags& flags,
                                   const config::JobFacts& facts);

// Does the same, but returns the errors as the status, one per line.
StatusOr<config::CheckResult> CheckJobConfig(const config::ConfigText& config,
                                             const TrainFlags& flags,
                                             const config::JobFacts& facts);

}  // namespace ds::cli
