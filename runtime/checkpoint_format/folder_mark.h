#pragma once

// FolderMark is a file with which processes on several hosts check that they share a folder. dsrun
// looks for checkpoints on its own host, and ranks write them on theirs.

#include <filesystem>
#include <string>

#include "runtime/base/status.h"

namespace ds::checkpoint {

// Creates the folder, and a file in it with a unique name and this process's owner mark
// (owner_mark.h). Returns the name. Removes marks that are a day old and have an owner that has
// ended. Younger ones stay, because other jobs may be starting.
StatusOr<std::string> MakeFolderMark(const std::filesystem::path& folder);

// Fails with kFailedPrecondition when the folder has no such mark, and with another code when it
// cannot be accessed.
Status FindFolderMark(const std::filesystem::path& folder, const std::string& mark);

void RemoveFolderMark(const std::filesystem::path& folder, const std::string& mark);

}  // namespace ds::checkpoint
