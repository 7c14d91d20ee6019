#pragma once

// Creates a checkpoint: written under a temporary name, then renamed to its final name. At every
// moment, including after a crash, a folder with a final name is complete, and a step that had a
// checkpoint still has one.
//
// Several writers may save to one root (writers.h explains how they coordinate). Each has its own
// folder, and a checkpoint holds the files of one writer. Only one process of a writer (rank 0)
// calls these functions.

#include <cstdint>
#include <filesystem>
#include <optional>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint_format/file_names.h"
#include "runtime/checkpoint_format/manifest.h"
#include "runtime/checkpoint_format/writers.h"

namespace ds::checkpoint {

// A save in progress.
struct UnfinishedCheckpoint {
  std::filesystem::path root;
  UnfinishedName name;
  WriterMark mark;
};

// Returns a name that no other writer has.
UnfinishedName DrawUnfinishedName(std::int64_t step, std::int64_t generation);

// Returns the folder in `root` to which the ranks write their files.
std::filesystem::path UnfinishedDirectory(const std::filesystem::path& root,
                                          const UnfinishedName& name);

// Creates `root` and an unfinished folder that holds only the writer's mark. If `root` has no
// `latest`, also makes the names of `root` and its parent folders durable. First cleans up after
// crashes: removes unfinished folders, which may fill the disk, unless their writer may be alive,
// and renames a step-N.old without a step-N back.
//
// Refuses ranks of a generation that may no longer save, before it changes anything.
StatusOr<UnfinishedCheckpoint> BeginCheckpoint(const std::filesystem::path& root, std::int64_t step,
                                               const std::optional<Lineage>& lineage = std::nullopt,
                                               FileSystem& system = FileSystem::System());

// Commits a checkpoint. Call it after all shard files are written and synced. Writes the manifest
// and reads it back, checks that every shard lies within its file, renames the folder to
// root/step-N, and names it in root/latest. An older root/step-N is replaced by one exchange, or by
// way of root/step-N.old when the file system has no rename flags. Returns root/step-N.
//
// On an error, the old step-N or the complete new one exists, and `latest` is unchanged. Refuses a
// generation that may no longer save. A `latest` that cannot be written is a warning in the log,
// not an error: the checkpoint is good, and FindNewestGood finds it by its parent if it has a
// lineage. Another job's root/step-N, and user files in a replaced one, are kept under
// root/step-N.other-X, also with a warning.
StatusOr<std::filesystem::path> CommitCheckpoint(const UnfinishedCheckpoint& unfinished,
                                                 const Manifest& manifest,
                                                 FileSystem& system = FileSystem::System());

// Fails for anything but a folder. Nothing may be removed through a link, because it may lead to a
// folder that the user keeps elsewhere.
Status CheckOwnFolder(const std::filesystem::path& folder);

// Removes a checkpoint's folder, finished or not. The caller must know that it has this format. The
// manifest and the writer's mark are removed last, so that the next save still recognizes the
// folder after a crash. If the folder holds user files, it stays with them, and kFailedPrecondition
// names one.
Status RemoveMadeFolder(const std::filesystem::path& folder,
                        FileSystem& system = FileSystem::System());

// Returns the first entry of the folder that no checkpoint writer creates; "" if there is none.
StatusOr<std::string> FindForeignEntry(const std::filesystem::path& folder);
std::string DescribeForeign(const std::filesystem::path& folder, const std::string& entry);

// Removes the unfinished folder. Ignores errors.
void AbandonCheckpoint(const UnfinishedCheckpoint& unfinished,
                       FileSystem& system = FileSystem::System());

}  // namespace ds::checkpoint
