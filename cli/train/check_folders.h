#pragma once

// The folders that the ranks of a job write into, and the files by which they choose samples,
// judged where ranks are on this host. Nothing is made or left in them.

#include <filesystem>

#include "cli/train/train_inputs.h"
#include "runtime/base/status.h"

namespace ds::cli {

// Refuses a folder that cannot be made or written: that of --save_hf and of the cache of tokens,
// and those for offload to files, which must be there; and a missing file of the data analyzer's.
// The errors are those of the ranks. Refuses a folder of --save_hf with a model that dsrun did not
// write, too, unless it is `own_output`: that of the run that is resumed, which was judged at its
// start.
Status CheckFolders(const TrainInputs& inputs);

// True of a folder with a model's weights or an adapter.
bool HoldsExport(const std::filesystem::path& folder);

}  // namespace ds::cli
