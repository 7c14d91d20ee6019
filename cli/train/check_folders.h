#pragma once

// Checks of a job's output folders and of the data analyzer's files, if ranks run on this host.
// They leave nothing in the folders.

#include <filesystem>

#include "cli/train/train_inputs.h"
#include "runtime/base/status.h"

namespace ds::cli {

// Rejects folders that cannot be created or written: the --save_hf folder and the token cache.
// Offload folders for files must already exist. Rejects a missing data analyzer file. The errors
// are those that ranks would report. Also rejects a --save_hf folder with a model that dsrun did
// not write. The exception is `own_output`, the folder of the resumed run, which was checked at its
// start.
Status CheckFolders(const TrainInputs& inputs);

// True for a folder with the weights of a model or with an adapter. A file that cannot be looked at
// is an error and not absent: the end of the job would replace it.
StatusOr<bool> HoldsExport(const std::filesystem::path& folder);

}  // namespace ds::cli
