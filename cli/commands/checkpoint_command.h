#pragma once

// dsrun checkpoint verify DIR: is every byte what was saved?
// dsrun checkpoint list DIR: which checkpoints are there?
//
// DIR is one checkpoint (.../step-20), a folder of them, or a run directory, whose checkpoints/ is
// meant.

#include <filesystem>
#include <ostream>

namespace ds::cli {

// Print for the command and return its exit status: kExitOk, or kExitCheckpoint when a checkpoint
// is damaged or there is none.
int VerifyCheckpoints(const std::filesystem::path& directory, std::ostream& out);
int ListCheckpoints(const std::filesystem::path& directory, std::ostream& out);

}  // namespace ds::cli
