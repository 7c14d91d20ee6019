#pragma once

// `dsrun checkpoint verify DIR` checks every byte of checkpoints.
// `dsrun checkpoint list DIR` lists checkpoints.
//
// DIR is one checkpoint (.../step-20), a folder of checkpoints, or a run directory, for its
// checkpoints/ folder.

#include <filesystem>
#include <ostream>

namespace ds::cli {

// Print to `out` and return the exit status: kExitOk, or kExitCheckpoint if a checkpoint is damaged
// or there is none.
int VerifyCheckpoints(const std::filesystem::path& directory, std::ostream& out);
int ListCheckpoints(const std::filesystem::path& directory, std::ostream& out);

}  // namespace ds::cli
