#pragma once

// Retention removes old checkpoints of a run after newer ones are committed.
//
// A checkpoint is removed only when its manifest proves that it belongs to the run: the manifest is
// readable, holds the step in the folder's name, and the run's lineage descends from the
// checkpoint. Damaged checkpoints, checkpoints of another branch or job, folders of other origin
// and folders with user files stay. Nothing is removed while `latest` does not name the newest
// checkpoint of the lineage, or by ranks of a generation that may not save.
//
// A removal first renames the folder to the name of an unfinished checkpoint, so that a crash
// leaves no partial checkpoint. The next save removes such a folder.
//
// Only one process of a run (rank 0) calls these functions, after a save.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint_format/lineage.h"

namespace ds::checkpoint {

struct RetentionPolicy {
  std::int64_t limit = 0;            // number of checkpoints to keep; 0 keeps all
  std::optional<std::int64_t> best;  // a step that always stays; counts towards `limit`
};

// Returns the steps to remove, oldest first, so that `limit` remain. The newest and the best step
// always stay, even with a limit of 1 (as in transformers' Trainer). Requires ascending steps.
std::vector<std::int64_t> ChooseStepsToRemove(std::span<const std::int64_t> steps,
                                              const RetentionPolicy& policy);

// Applies the policy to the run's checkpoints in `root`. `lineage` is the lineage of checkpoints
// that follow the newest one. A failure is a warning in the log, and the next save tries again.
void PruneCheckpoints(const std::filesystem::path& root, const RetentionPolicy& policy,
                      const Lineage& lineage, FileSystem& system = FileSystem::System());

// Removes root/step-N. Fails with kFailedPrecondition when one of the rules above forbids it.
Status RemoveCheckpoint(const std::filesystem::path& root, std::int64_t step,
                        const Lineage& lineage, FileSystem& system = FileSystem::System());

// Removes the checkpoints of other steps than `step` that `program` has written
// (Manifest::written_by), from a folder where each of its saves replaces the former one. Nothing is
// removed while `latest` does not name `step`. Failures are warnings, as above.
void RemoveReplacedCheckpoints(const std::filesystem::path& root, std::int64_t step,
                               std::string_view program, FileSystem& system = FileSystem::System());

}  // namespace ds::checkpoint
