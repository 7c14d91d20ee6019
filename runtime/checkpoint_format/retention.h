#pragma once

// Retention: old checkpoints of a run are removed once newer ones are committed.
//
// A checkpoint is removed only when its manifest proves that it belongs to the run: it is readable,
// it holds the step of the folder's name, and the run's lineage comes from it. Damaged checkpoints,
// those of another future or job, folders of other origin and those with the user's files stay.
// Nothing is removed while `latest` does not name the newest checkpoint of the lineage, or by ranks
// of a generation that may not save.
//
// A removal renames the folder to the name of an unfinished checkpoint first, so that a crash
// leaves no half checkpoint; the next save removes such a folder.
//
// One process of a run (rank 0) calls these, after a save.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint_format/lineage.h"

namespace ds::checkpoint {

struct RetentionPolicy {
  std::int64_t limit = 0;            // checkpoints to keep; 0: all
  std::optional<std::int64_t> best;  // a step that always stays; it counts as one of them
};

// Returns the steps to remove, oldest first, so that `limit` stay. The newest and the best stay
// always, even with a limit of 1 (as in transformers' Trainer). Requires ascending steps.
std::vector<std::int64_t> ChooseStepsToRemove(std::span<const std::int64_t> steps,
                                              const RetentionPolicy& policy);

// Applies the policy to the run's checkpoints in `root`. `lineage` is that of what follows the
// newest checkpoint. A failure is a warning in the log: the next save tries again.
void PruneCheckpoints(const std::filesystem::path& root, const RetentionPolicy& policy,
                      const Lineage& lineage, FileSystem& system = FileSystem::System());

// Removes root/step-N. kFailedPrecondition when one of the rules above forbids it.
Status RemoveCheckpoint(const std::filesystem::path& root, std::int64_t step,
                        const Lineage& lineage, FileSystem& system = FileSystem::System());

}  // namespace ds::checkpoint
