#pragma once

// The last steps that `train` and `resume` share: describe the job in its run directory, then run
// it.

#include <memory>

#include "cli/job/job_plan.h"
#include "cli/job/run_directory.h"
#include "cli/train/train_inputs.h"
#include "runtime/base/status.h"

namespace ds::cli {

// RunTraining plans the job from `request` and what `inputs` say of training, and runs it. It
// returns the exit status of dsrun; an error means that nothing ran.
StatusOr<int> RunTraining(JobRequest request, TrainInputs inputs,
                          std::unique_ptr<RunDirectory> run_directory);

}  // namespace ds::cli
