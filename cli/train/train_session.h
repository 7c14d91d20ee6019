#pragma once

// The final steps of `train` and `resume`: write the job into its run directory, then run it.

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

// RunTraining plans the job from `request` and `inputs`, and runs it. `judged` must result from the
// same inputs and ranks. Returns the exit status of dsrun; an error means that nothing ran.
StatusOr<int> RunTraining(JobRequest request, TrainInputs inputs, JudgedTraining judged,
                          std::unique_ptr<RunDirectory> run_directory);

// DescribeSplitGroups finds rank groups that communicate in every layer and span several hosts.
// Pure; safe from any thread.

// Returns one sentence for tensor-parallel and one for sequence-parallel ranks, if a group spans
// hosts. It names the ranks, their hosts, and a way to keep them together. Ranks are numbered host
// by host. Tensor ranks are adjacent, sequence ranks enclose them (topology::Degrees). The degrees
// must divide the number of ranks.
std::vector<std::string> DescribeSplitGroups(const WorldPlan& world,
                                             const config::ParallelConfig& degrees);

}  // namespace ds::cli
