#pragma once

// The last steps that `train` and `resume` share: describe the job in its run directory, then run
// it.

#include <memory>
#include <string>
#include <vector>

#include "cli/job/job_plan.h"
#include "cli/job/run_directory.h"
#include "cli/launch/launch_plan.h"
#include "cli/train/judge_training.h"
#include "cli/train/train_inputs.h"
#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"

namespace ds::cli {

RankCounts CountRanks(const WorldPlan& world);

// RunTraining plans the job from `request` and what `inputs` say of training, and runs it. `judged`
// is of these inputs and ranks. It returns the exit status of dsrun; an error means that nothing
// ran.
StatusOr<int> RunTraining(JobRequest request, TrainInputs inputs, JudgedTraining judged,
                          std::unique_ptr<RunDirectory> run_directory);

// DescribeSplitGroups looks for ranks that talk in every layer and do not lie on one host. Pure;
// safe from any thread.

// A sentence for tensor ranks and one for sequence ranks, where a group of them is cut by the end
// of a host: which ranks, on which hosts, and what would keep them together. Ranks are numbered
// host by host, tensor ranks being neighbours, and sequence ranks around them (topology::Degrees).
// Requires degrees that divide the number of ranks.
std::vector<std::string> DescribeSplitGroups(const WorldPlan& world,
                                             const config::ParallelConfig& degrees);

}  // namespace ds::cli
