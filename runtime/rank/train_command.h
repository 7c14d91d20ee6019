#pragma once

// The `train` job: what `dsrank train JOB.json` does, as a list of named phases.

#include "runtime/comm/rank_identity.h"
#include "runtime/config/train_job.h"
#include "runtime/rank/rank_reporter.h"

namespace ds::rank {

// Exit statuses of dsrank; dsrun passes on the first failing rank's.
inline constexpr int kExitFailure = 1;     // anything that has no status of its own
inline constexpr int kExitUsage = 2;       // job, config, model or data cannot be used
inline constexpr int kExitCheckpoint = 6;  // a checkpoint cannot be written or read

// Trains to the end. A failure is reported and ends the process with its status; no exception
// leaves.
void RunTrain(const config::TrainJob& job, const comm::RankIdentity& identity,
              RankReporter& reporter);

}  // namespace ds::rank
