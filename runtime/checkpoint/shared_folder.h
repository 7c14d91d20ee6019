#pragma once

// CheckSharedFolder: whether all ranks, and dsrun, see one and the same folder. A checkpoint is
// written by all ranks, committed by rank 0, which reads what the others have written, and found by
// dsrun when the job has to go on.

#include <filesystem>
#include <string>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"

namespace ds::checkpoint {

// kFailedPrecondition, on all ranks alike, when one of them does not find the mark that dsrun has
// made there (format/folder_mark.h). Removes the mark. Collective.
Status CheckSharedFolder(const std::filesystem::path& folder, const std::string& mark,
                         comm::Communicator& world);

}  // namespace ds::checkpoint
