#pragma once

// Brings a checkpoint into being: unfinished under a temporary name, then whole under its own.
// At every moment, a crash included, what has a final name is complete, and a step that had a
// checkpoint has one.
//
// Several writers may work in one root (writers.h says how they know of each other): each has a
// folder of its own, and a checkpoint holds the files of one. One process of a writer (rank 0)
// calls these.

#include <cstdint>
#include <filesystem>
#include <optional>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint_format/file_names.h"
#include "runtime/checkpoint_format/manifest.h"
#include "runtime/checkpoint_format/writers.h"

namespace ds::checkpoint {

// A save that is under way.
struct UnfinishedCheckpoint {
  std::filesystem::path root;
  UnfinishedName name;
  WriterMark mark;
};

// A name that no other writer has.
UnfinishedName DrawUnfinishedName(std::int64_t step, std::int64_t generation);

// The folder in `root` where the ranks put their files.
std::filesystem::path UnfinishedDirectory(const std::filesystem::path& root,
                                          const UnfinishedName& name);

// Creates root and an unfinished folder that holds the writer's mark alone; a root without latest
// has its name, and those of the folders above it, synced. Before, it cleans up behind a crash:
// unfinished folders go, since they may fill the disk, unless their writer may live, and a
// step-N.old without a step-N gets its name back.
//
// Before anything is touched, ranks of a generation that may not save any more are refused.
StatusOr<UnfinishedCheckpoint> BeginCheckpoint(const std::filesystem::path& root, std::int64_t step,
                                               const std::optional<Lineage>& lineage = std::nullopt,
                                               FileSystem& system = FileSystem::System());

// Every shard file must be there and synced. Writes the manifest and reads it back, checks that
// every shard lies within its file, renames to root/step-N, and names it in root/latest. An older
// root/step-N is replaced in one move, or by way of root/step-N.old where renames have no flags.
// Returns root/step-N. On an error there is the old step-N or the whole new one, and latest is what
// it was. A generation that may not save any more is refused. A latest that cannot be written is no
// error, but a warning in the log: the checkpoint is good, and one that tells its lineage is found
// by its parent. Another job's root/step-N, and the user's files in a replaced one, stay under
// root/step-N.other-X, with a warning, too.
StatusOr<std::filesystem::path> CommitCheckpoint(const UnfinishedCheckpoint& unfinished,
                                                 const Manifest& manifest,
                                                 FileSystem& system = FileSystem::System());

// Fails for a link, which may name a folder that the user keeps elsewhere, and for all that is no
// folder: nothing may be removed through it.
Status CheckOwnFolder(const std::filesystem::path& folder);

// Removes a checkpoint's folder, finished or not, that the caller knows to be of this format. The
// writer's mark and the manifest go last: a removal that a crash cuts off leaves a folder that the
// next save knows as well. The user's files stay, with the folder: kFailedPrecondition names one.
Status RemoveMadeFolder(const std::filesystem::path& folder,
                        FileSystem& system = FileSystem::System());

// The first entry of the folder that no checkpoint's writer makes; "" for none.
StatusOr<std::string> FindForeignEntry(const std::filesystem::path& folder);
std::string DescribeForeign(const std::filesystem::path& folder, const std::string& entry);

// Removes the unfinished folder, as far as possible.
void AbandonCheckpoint(const UnfinishedCheckpoint& unfinished,
                       FileSystem& system = FileSystem::System());

}  // namespace ds::checkpoint
