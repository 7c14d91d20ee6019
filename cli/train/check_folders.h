#pragma once

// The folders that the ranks of a job write into, and the files by which they choose samples,
// judged where ranks are on this host. Nothing is made or left in them.

#include "runtime/base/status.h"
#include "runtime/config/curriculum.h"
#include "runtime/config/ds_config.h"
#include "runtime/config/train_job.h"

namespace ds::cli {

// Refuses a folder that cannot be made or written: that of --save_hf and of the cache of tokens,
// and those for offload to files, which must be there; and a missing file of the data analyzer's.
// The errors are those of the ranks.
Status CheckFolders(const config::TrainJob& job, const config::DsConfig& config,
                    const config::DataEfficiency& efficiency);

}  // namespace ds::cli
