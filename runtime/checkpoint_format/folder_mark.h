#pragma once

// FolderMark: a file by which processes of several hosts find out whether a folder is the
// same one for all of them. dsrun looks for checkpoints where it runs, ranks write them where they
// run.

#include <filesystem>
#include <string>

#include "runtime/base/status.h"

namespace ds::checkpoint {

// Creates the folder, and in it a file with a name that no other has and this process's owner mark
// (owner_mark.h). Removes the marks that have been there for a day and whose owners have ended:
// other jobs may be starting. Returns the name.
StatusOr<std::string> MakeFolderMark(const std::filesystem::path& folder);

// kFailedPrecondition when the folder has no such mark, another code when it cannot be looked at.
Status FindFolderMark(const std::filesystem::path& folder, const std::string& mark);

void RemoveFolderMark(const std::filesystem::path& folder, const std::string& mark);

}  // namespace ds::checkpoint
