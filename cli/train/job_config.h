#pragma once

// The ds_config of a training job before it is checked: the user's own with what it is laid over,
// or that of a run that goes on.
//
// "auto" stays "auto" here. CheckConfig resolves it once, with everything laid over.

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

// Reads the user's ds_config. Without one the base of `facts` holds alone, and without a base of
// the flags' (a recipe's) that is the built-in config, which gives way to every flag.
StatusOr<config::ConfigText> ReadJobConfig(const TrainFlags& flags, const ShareFolder& share,
                                           config::JobFacts* facts);

// The config that a run has had, but for what the flags say now. What "auto" stood for is found
// anew, for the steps and the model of now.
config::ConfigText RunsConfig(const config::TrainJob& job, const TrainFlags& flags);

// Checks a config with the schedule that the flags ask for, if they do. Its warnings and errors are
// among the result's.
config::CheckResult JudgeJobConfig(const config::ConfigText& config, const TrainFlags& flags,
                                   const config::JobFacts& facts);

// The same with the errors as the status, a line each.
StatusOr<config::CheckResult> CheckJobConfig(const config::ConfigText& config,
                                             const TrainFlags& flags,
                                             const config::JobFacts& facts);

}  // namespace ds::cli
