#pragma once

// Lists the checkpoints in a folder and selects the one to resume from.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"

namespace ds::checkpoint {

struct ListedCheckpoint {
  std::filesystem::path directory;
  std::int64_t step = 0;
  bool latest = false;  // named by root/latest
};

// Returns the folder of a step: root/step-N, or root/step-N.old when a crash interrupted its
// replacement.
std::filesystem::path DirectoryOfStep(const std::filesystem::path& root, std::int64_t step);

// Returns the finished checkpoints in ascending order of steps, without unfinished ones
// (step-N.tmp-...). Fails with kNotFound when `root` does not exist, and with kUnavailable when it
// cannot be read now (reading.h).
StatusOr<std::vector<ListedCheckpoint>> ListCheckpoints(const std::filesystem::path& root,
                                                        FileSystem& system = FileSystem::System());

struct SkippedCheckpoint {
  std::filesystem::path directory;
  std::string reason;  // "it is damaged: ..." or "it is another job's: ..."
};

struct NewestCheckpoint {
  std::optional<ListedCheckpoint> found;
  std::vector<SkippedCheckpoint> skipped;  // preferred, but damaged or foreign
};

// Returns the newest good checkpoint on the job's living line (lineage.h). The line consists of the
// head and the head's past. The head is the checkpoint named by `latest`, or its newest successor
// when `latest` was not updated in time. Checkpoints that a job left when it was rolled back are
// never selected, however high their steps.
//
// Without a `latest`, the head is the highest step of the newest generation, and checkpoints of two
// jobs are kFailedPrecondition. A checkpoint copied from another job's folder is on no line of this
// job (lineage.h).
//
// Finding no good checkpoint is not an error: the result is empty and gives a reason for each
// skipped one. Fails with kUnavailable when a preferred checkpoint cannot be read now (reading.h).
// It may be good, so no older one is returned in its place.
StatusOr<NewestCheckpoint> FindNewestGood(const std::filesystem::path& root,
                                          FileSystem& system = FileSystem::System());

}  // namespace ds::checkpoint
