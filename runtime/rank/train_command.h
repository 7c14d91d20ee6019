#pragma once

// The `train` job: what `dsrank train JOB.json` does, as a list of named phases.

#include "runtime/comm/rank_identity.h"
#include "runtime/config/train_job.h"
#include "runtime/rank/rank_reporter.h"

namespace ds::rank {

// Trains to the end. A failure is reported and ends the process with its status
// (runtime/base/exit_codes.h), which dsrun passes on; no exception leaves.
void RunTrain(const config::TrainJob& job, const comm::RankIdentity& identity,
              RankReporter& reporter);

}  // namespace ds::rank
