#pragma once

// CheckSharedFolder checks that all ranks and dsrun see the same folder. All ranks write a
// checkpoint; rank 0 reads the other ranks' files and commits it; dsrun finds it when the job
// resumes.

#include <filesystem>
#include <string>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"

namespace ds::checkpoint {

// Fails on all ranks with kFailedPrecondition when some rank does not find the mark that dsrun has
// created in the folder (checkpoint_format/folder_mark.h). Removes the mark. Collective: all ranks
// of `world` call it.
Status CheckSharedFolder(const std::filesystem::path& folder, const std::string& mark,
                         comm::Communicator& world);

}  // namespace ds::checkpoint
