#pragma once

// Brings a checkpoint into being: unfinished under a temporary name, then whole under its own.
// At every moment, a crash included, what has a final name is complete, and a step that had a
// checkpoint has one.
//
// One job writes to a root at a time; one process of it (rank 0) calls these.

#include <cstdint>
#include <filesystem>
#include <optional>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint/format/manifest.h"

namespace ds::checkpoint {

// root/step-N.tmp, where the ranks put their files.
std::filesystem::path UnfinishedDirectory(const std::filesystem::path& root, std::int64_t step);

// Creates root and an empty root/step-N.tmp; a root without latest has its name, and those of the
// folders above it, synced. Before, it cleans up behind a crash: unfinished
// checkpoints go, since they may fill the disk and nothing will ever finish them, and a step-N.old
// without a step-N gets its name back.
//
// Before anything is touched, ranks of a generation that may not save any more are refused.
Status BeginCheckpoint(const std::filesystem::path& root, std::int64_t step,
                       const std::optional<Lineage>& lineage = std::nullopt,
                       FileSystem& system = FileSystem::System());

// Every shard file must be there and synced. Writes the manifest and reads it back, checks that
// every shard lies within its file, renames to root/step-N, and names it in root/latest. An older
// root/step-N is replaced in one move, or by way of root/step-N.old where renames have no flags.
// Returns root/step-N. On an error there is the old step-N or the whole new one, and latest is what
// it was. A generation that may not save any more is refused. A latest that cannot be written is no
// error, but a warning in the log: the checkpoint is good, and one that tells its lineage is found
// by its parent.
StatusOr<std::filesystem::path> CommitCheckpoint(const std::filesystem::path& root,
                                                 const Manifest& manifest,
                                                 FileSystem& system = FileSystem::System());

// Removes root/step-N.tmp, as far as possible.
void AbandonCheckpoint(const std::filesystem::path& root, std::int64_t step,
                       FileSystem& system = FileSystem::System());

}  // namespace ds::checkpoint
