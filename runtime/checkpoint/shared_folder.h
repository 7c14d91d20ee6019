#pragma once

// CheckSharedFolder: whether all ranks see one and the same folder. A checkpoint is written by all
// of them and committed by rank 0, which reads what the others have written.

#include <filesystem>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"

namespace ds::checkpoint {

// Creates the folder. kFailedPrecondition, on all ranks alike, when one of them finds another
// folder by that name than rank 0 does. Leaves nothing in it. Collective.
Status CheckSharedFolder(const std::filesystem::path& folder, comm::Communicator& world);

}  // namespace ds::checkpoint
