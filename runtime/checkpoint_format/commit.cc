#include "runtime/checkpoint_format/commit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <random>
#include <system_error>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint_format/file_names.h"
#include "runtime/checkpoint_format/latest.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;

StatusOr<std::vector<fs::path>> EntriesOf(const fs::path& root) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(root, error); entry != fs::directory_iterator();
       entry.increment(error)) {
    entries.push_back(entry->path());
  }
  if (error) return ErrnoError(error.value(), root.string());
  return entries;
}

// Returns true when a checkpoint writer made the folder: it holds a writer's mark or a manifest.
bool IsOurs(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kWriterFile, error) ||
         fs::is_regular_file(folder / kManifestFile, error);
}

// Like RemoveMadeFolder, but user files in the folder are a warning, not an error that stops the
// save.
Status RemoveOurs(const fs::path& folder, FileSystem& system) {
  Status removed = RemoveMadeFolder(folder, system);
  if (removed.code() != StatusCode::kFailedPrecondition) return removed;
  LogWarning(removed.message());
  return OkStatus();
}

// Removes an unfinished checkpoint after its writer has ended. A crash before the mark is written
// leaves an empty folder. A link, and a folder with other content, belongs to the user.
Status RemoveUnfinished(const fs::path& folder, FileSystem& system) {
  if (CheckOwnFolder(folder).ok() && IsOurs(folder)) return RemoveOurs(folder, system);
  const int removed = system.Unlink(folder, AT_REMOVEDIR);
  if (removed != 0 && removed != -ENOENT) {
    LogWarning(folder.string() + " is left: it holds neither a writer's mark nor a manifest");
  }
  return OkStatus();
}

// Completes a replacement that a crash interrupted: renames step-N.old back, or removes it when the
// newer step-N exists. The mark proves that a replacement made it, not the user. Without locks, a
// living writer may be in the middle of the replacement. Its renames replace only empty folders, so
// they fail then, and the older one stays.
Status EndReplacement(const fs::path& replaced, FileSystem& system) {
  DS_ASSIGN_OR_RETURN(const bool is_ours, HasWriterMark(replaced));
  if (!is_ours) {
    system.Unlink(replaced, AT_REMOVEDIR);  // left by an interrupted removal; only if empty
    return OkStatus();
  }
  const fs::path final = fs::path(replaced).replace_extension();
  std::error_code error;
  const fs::file_status there = fs::status(final, error);
  if (there.type() == fs::file_type::not_found) return RenameDurably(replaced, final, system);
  if (error) return ErrnoError(error.value(), final.string());
  return CheckOwnFolder(replaced).ok() ? RemoveOurs(replaced, system) : OkStatus();
}

// Returns true for a temporary file of `latest` left by a crash, with the start of a step's name in
// it, or empty.
bool IsLatestDraft(const fs::path& path) {
  constexpr std::string_view kStart = "step-";
  std::error_code error;
  if (!IsDraftOf(kLatestFile, path.filename().string()) ||
      !fs::is_regular_file(fs::symlink_status(path, error))) {
    return false;
  }
  const StatusOr<std::string> text = ReadFile(path);
  return text.ok() && (text->starts_with(kStart) || kStart.starts_with(*text));
}

// Makes the names of `root` and its parent folders durable. Otherwise a crash could remove such a
// name and lose the checkpoints below. The creator of those folders may not have synced them.
Status SyncParentFolders(const fs::path& root, FileSystem& system) {
  std::error_code error;
  fs::path folder = fs::canonical(root, error);
  if (error) return ErrnoError(error.value(), root.string());
  while (folder.has_relative_path()) {
    folder = folder.parent_path();
    const Status synced = SyncDirectory(folder, system);
    // If this user cannot read the folder, its entries were not created by this user.
    if (!synced.ok() && synced.code() != StatusCode::kPermissionDenied) return synced;
  }
  return OkStatus();
}

// Cleans up after crashes. Generations before `living` may not commit any more.
Status Recover(const fs::path& root, std::int64_t living, const FolderLock& lock,
               FileSystem& system) {
  DS_ASSIGN_OR_RETURN(const std::vector<fs::path> entries, EntriesOf(root));
  for (const fs::path& path : entries) {
    const std::string name = path.filename().string();
    if (StepOfReplacedName(name)) DS_RETURN_IF_ERROR(EndReplacement(path, system));
    if (IsLatestDraft(path)) DS_RETURN_IF_ERROR(RemoveTree(path, system));
    const auto unfinished = ParseUnfinishedName(name);
    if (!unfinished) continue;
    if (IsAbandoned(path, unfinished->generation < living, lock, system)) {
      DS_RETURN_IF_ERROR(RemoveUnfinished(path, system));
    } else {
      LogWarning(path.string() +
                 " is left: its writer may live; remove it when no other job saves here");
    }
  }
  return OkStatus();
}

// Returns the minimum size of each file according to the manifest.
std::map<std::string, std::uint64_t> NeededSizes(const Manifest& manifest) {
  std::map<std::string, std::uint64_t> needed;
  for (const StoredTensor& tensor : manifest.tensors) {
    for (const StoredShard& shard : tensor.shards) {
      std::uint64_t& size = needed[shard.file];
      size = std::max(size, shard.offset + shard.length);
    }
  }
  return needed;
}

Status CheckFiles(const fs::path& directory, const Manifest& manifest) {
  for (const auto& [file, needed] : NeededSizes(manifest)) {
    std::error_code error;
    const std::uint64_t size = fs::file_size(directory / file, error);
    if (error) {
      return ErrnoError(error.value(), (directory / file).string())
          .WithContext(
              "a rank's file cannot be seen here; checkpoints need a folder that all "
              "hosts share");
    }
    if (size < needed) {
      return DataLossError(
          fmt::format("{}: {} bytes, {} were written", (directory / file).string(), size, needed));
    }
  }
  return OkStatus();
}

Status WriteManifest(const fs::path& directory, const Manifest& manifest, FileSystem& system) {
  constexpr unsigned kMode = 0644;
  DS_RETURN_IF_ERROR(WriteFileAtomically(directory / kManifestFile, SerializeManifest(manifest),
                                         kMode, Durability::kDurable, system));
  DS_ASSIGN_OR_RETURN(const Manifest read_back, ReadManifest(directory));
  if (read_back == manifest) return OkStatus();
  return DataLossError(fmt::format("{}: its content differs from the written one",
                                   (directory / kManifestFile).string()));
}

// Renames a folder that this job may not remove, to a name that no checkpoint has.
Status SetAside(const fs::path& folder, const fs::path& final, const std::string& reason,
                FileSystem& system) {
  const std::uint64_t nonce = DrawUnfinishedName(0, 0).nonce;
  const fs::path aside = final.string() + fmt::format(".other-{:016x}", nonce);
  DS_RETURN_IF_ERROR(RenameDurably(folder, aside, system));
  LogWarning(fmt::format("{} is {} now: {}", final.string(), aside.filename().string(), reason));
  return OkStatus();
}

// Sets a checkpoint aside that was copied from another job's folder and has the name needed now.
Status SetOtherJobAside(const fs::path& final, const Manifest& manifest, FileSystem& system) {
  if (!CheckOwnFolder(final).ok()) return OkStatus();
  const StatusOr<Manifest> there = ReadManifest(final);
  const bool both_have_lineage = there.ok() && there->lineage && manifest.lineage;
  if (!both_have_lineage || MayBeOfOneJob(*there->lineage, *manifest.lineage)) return OkStatus();
  return SetAside(final, final, "it is another job's, and this job saves the step", system);
}

// Removes the folder that `final` has replaced. Failures are warnings, because the newer checkpoint
// is good and the next save removes leftovers. If `replaced` is a link to a checkpoint elsewhere,
// only the link is removed. A file belongs to the user.
void RemoveReplaced(const fs::path& replaced, const fs::path& final, FileSystem& system) {
  std::error_code error;
  const bool is_link = fs::is_symlink(replaced, error);
  Status removed = is_link ? RemoveTree(replaced, system) : RemoveMadeFolder(replaced, system);
  if (removed.code() == StatusCode::kFailedPrecondition) {
    removed = SetAside(replaced, final, "dsrun did not write all of it", system);
  }
  if (!removed.ok()) LogWarning("an older checkpoint is left: " + removed.message());
}

// Replaces `final` with `unfinished` by renames without flags. A crash between two renames leaves
// step-N.old without step-N; the next listing or save treats it as step-N.
Status ReplaceInSteps(const fs::path& unfinished, const fs::path& final, FileSystem& system) {
  const fs::path replaced = final.string() + kReplacedSuffix;
  std::optional<StatusOr<WriterMark>> mark;  // locked until the end; none for the target of a link
  if (CheckOwnFolder(final).ok()) mark.emplace(WriterMark::Leave(final, system));
  const Status marked = mark ? mark->status() : OkStatus();
  if (!marked.ok() && marked.code() != StatusCode::kAlreadyExists) return marked;
  int renamed = system.Rename(final, replaced, 0);
  if (renamed != 0) return ErrnoError(-renamed, final.string());
  renamed = system.Rename(unfinished, final, 0);
  if (renamed != 0) {
    system.Rename(replaced, final, 0);
    return ErrnoError(-renamed, final.string());
  }
  DS_RETURN_IF_ERROR(SyncDirectory(final.parent_path(), system));
  RemoveReplaced(replaced, final, system);
  return OkStatus();
}

// Renames `unfinished` to `final`. If `final` exists, exchanges the two in one rename where the
// file system can, and removes the older one.
Status TakeName(const fs::path& unfinished, const fs::path& final, FileSystem& system) {
  Status taken = RenameDurably(unfinished, final, system);
  std::error_code error;  // for plain rename(2) a link in the way is ENOTDIR
  const bool is_link = !taken.ok() && fs::is_symlink(final, error);
  if (taken.code() != StatusCode::kAlreadyExists && !is_link) return taken;
  const int exchanged = system.Rename(unfinished, final, RENAME_EXCHANGE);
  if (exchanged != 0 && LacksRenameFlags(-exchanged)) {
    return ReplaceInSteps(unfinished, final, system);
  }
  if (exchanged != 0) return ErrnoError(-exchanged, final.string());
  DS_RETURN_IF_ERROR(SyncDirectory(final.parent_path(), system));
  RemoveReplaced(unfinished, final, system);
  return OkStatus();
}

}  // namespace

UnfinishedName DrawUnfinishedName(std::int64_t step, std::int64_t generation) {
  constexpr int kHalf = 32;
  std::random_device random;
  const std::uint64_t nonce = std::uint64_t{random()} << kHalf | random();
  return {step, generation, nonce >> 1};  // ranks exchange it as an int64
}

Status CheckOwnFolder(const fs::path& folder) {
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0) return ErrnoError(errno, folder.string());
  if (S_ISDIR(info.st_mode)) return OkStatus();
  return FailedPreconditionError(folder.string() +
                                 " stays: it is a link or a file, and no folder of this run");
}

Status RemoveMadeFolder(const fs::path& folder, FileSystem& system) {
  DS_RETURN_IF_ERROR(CheckOwnFolder(folder));
  DS_ASSIGN_OR_RETURN(const std::vector<fs::path> entries, EntriesOf(folder));
  for (const fs::path& entry : entries) {
    const std::string name = entry.filename().string();
    const bool is_last = name == kWriterFile || name == kManifestFile;
    if (IsCheckpointFile(name) && !is_last) DS_RETURN_IF_ERROR(RemoveTree(entry, system));
  }
  // The writer's mark is the stronger proof, so it is removed after the manifest.
  for (const char* name : {kManifestFile, kWriterFile}) {
    DS_RETURN_IF_ERROR(RemoveTree(folder / name, system));
  }
  const int removed = system.Unlink(folder, AT_REMOVEDIR);
  if (removed == 0 || removed == -ENOENT) return OkStatus();
  DS_ASSIGN_OR_RETURN(const std::string foreign, FindForeignEntry(folder));
  if (foreign.empty()) return ErrnoError(-removed, folder.string());
  return FailedPreconditionError(DescribeForeign(folder, foreign));
}

StatusOr<std::string> FindForeignEntry(const fs::path& folder) {
  DS_ASSIGN_OR_RETURN(const std::vector<fs::path> entries, EntriesOf(folder));
  for (const fs::path& entry : entries) {
    std::string name = entry.filename().string();
    if (!IsCheckpointFile(name)) return name;
  }
  return std::string();
}

std::string DescribeForeign(const fs::path& folder, const std::string& entry) {
  return folder.string() + " stays: it holds " + entry + ", which dsrun did not write";
}

fs::path UnfinishedDirectory(const fs::path& root, const UnfinishedName& name) {
  return root / UnfinishedDirectoryName(name);
}

StatusOr<UnfinishedCheckpoint> BeginCheckpoint(const fs::path& root, std::int64_t step,
                                               const std::optional<Lineage>& lineage,
                                               FileSystem& system) {
  DS_RETURN_IF_ERROR(CheckMaySave(root, lineage));
  if (const Status made = MakeDirectories(root, system); !made.ok()) {
    return made.WithContext("the checkpoint folder " + root.string());
  }
  DS_ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::Take(root, system));
  DS_ASSIGN_OR_RETURN(const std::optional<Latest> latest, ReadLatest(root));
  if (!latest) DS_RETURN_IF_ERROR(SyncParentFolders(root, system));
  const std::int64_t own = lineage ? lineage->generation : 0;
  DS_RETURN_IF_ERROR(Recover(root, std::max(own, latest ? latest->generation : 0), lock, system));
  const UnfinishedName name = DrawUnfinishedName(step, own);
  const fs::path directory = UnfinishedDirectory(root, name);
  const int made = system.MakeDirectory(directory);
  if (made != 0) return ErrnoError(-made, directory.string());
  StatusOr<WriterMark> mark = WriterMark::Leave(directory, system);
  if (mark.ok()) return UnfinishedCheckpoint{root, name, *std::move(mark)};
  static_cast<void>(RemoveMadeFolder(directory, system));
  return mark.status();
}

StatusOr<fs::path> CommitCheckpoint(const UnfinishedCheckpoint& unfinished,
                                    const Manifest& manifest, FileSystem& system) {
  const fs::path& root = unfinished.root;
  const fs::path directory = UnfinishedDirectory(root, unfinished.name);
  const fs::path final = root / StepDirectoryName(manifest.step);
  Status status = CheckManifest(manifest);
  if (!status.ok()) return status.WithContext("the parts' shards do not make complete tensors");
  DS_RETURN_IF_ERROR(CheckFiles(directory, manifest));
  DS_RETURN_IF_ERROR(WriteManifest(directory, manifest, system));
  // While this lock is held, no other writer inspects the folder or lets a newer generation save.
  DS_ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::Take(root, system));
  DS_RETURN_IF_ERROR(CheckMaySave(root, manifest.lineage));
  // A mark left in a good checkpoint is harmless.
  system.Unlink(directory / kWriterFile, 0);
  DS_RETURN_IF_ERROR(SetOtherJobAside(final, manifest, system));
  DS_RETURN_IF_ERROR(TakeName(directory, final, system));
  const Latest latest{.step = manifest.step,
                      .generation = manifest.lineage ? manifest.lineage->generation : 0,
                      .lineage = manifest.lineage,
                      .start = manifest.lineage ? manifest.lineage->start : 0};
  const Status named = WriteLatest(root, latest, system);
  if (!named.ok()) {
    LogWarning(fmt::format("{} is complete, but '{}' does not name it: {}", final.string(),
                           kLatestFile, named.message()));
  }
  return final;
}

void AbandonCheckpoint(const UnfinishedCheckpoint& unfinished, FileSystem& system) {
  // The caller reports the failure that led here. The next save retries the removal.
  static_cast<void>(
      RemoveMadeFolder(UnfinishedDirectory(unfinished.root, unfinished.name), system));
}

}  // namespace ds::checkpoint
