#pragma once

// Lists the checkpoints of a folder, and picks the one to go on from.

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

// The folder of a step: root/step-N, or root/step-N.old when a crash cut off its replacement.
std::filesystem::path DirectoryOfStep(const std::filesystem::path& root, std::int64_t step);

// Returns the finished ones, by step; unfinished ones (step-N.tmp-...) are not listed. A root that
// is not there is kNotFound, one that cannot be read now kUnavailable (reading.h).
StatusOr<std::vector<ListedCheckpoint>> ListCheckpoints(const std::filesystem::path& root,
                                                        FileSystem& system = FileSystem::System());

struct SkippedCheckpoint {
  std::filesystem::path directory;
  std::string reason;  // "it is damaged: ...", or "it is another job's: ..."
};

struct NewestCheckpoint {
  std::optional<ListedCheckpoint> found;
  std::vector<SkippedCheckpoint> skipped;  // damaged or foreign ones that would have been preferred
};

// Picks the newest good one of the job's living line (lineage.h): of the head, which `latest` names
// or a checkpoint right behind it is, and what the head comes from. What a job left behind when it
// was sent back is never picked, however high its step. Without a `latest`, the head is the highest
// step of the newest generation, and checkpoints of two jobs are kFailedPrecondition. Another job's
// checkpoint that was copied into the folder is on no line of this one (lineage.h). Finding none is
// not an error: an empty result says why each was skipped. kUnavailable when one that would be
// preferred cannot be read now (reading.h): it may be good, and an older one is not taken in its
// place.
StatusOr<NewestCheckpoint> FindNewestGood(const std::filesystem::path& root,
                                          FileSystem& system = FileSystem::System());

}  // namespace ds::checkpoint
