#include "runtime/checkpoint/format/commit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>

#include <cerrno>
#include <map>
#include <system_error>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/checkpoint/format/file_names.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;

bool IsUnfinishedName(std::string_view name) {
  constexpr std::string_view kSuffix = kUnfinishedSuffix;
  return name.ends_with(kSuffix) &&
         StepOfDirectoryName(name.substr(0, name.size() - kSuffix.size())).has_value();
}

Status RemoveTree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return ErrnoError(error.value(), path.string());
  return OkStatus();
}

Status RemoveUnfinished(const fs::path& root) {
  std::error_code error;
  std::vector<fs::path> unfinished;
  for (fs::directory_iterator entry(root, error); entry != fs::directory_iterator();
       entry.increment(error)) {
    if (IsUnfinishedName(entry->path().filename().string())) unfinished.push_back(entry->path());
  }
  if (error) return ErrnoError(error.value(), root.string());
  for (const fs::path& path : unfinished) DS_RETURN_IF_ERROR(RemoveTree(path));
  return OkStatus();
}

// Where each file must reach, by the manifest.
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

Status WriteManifest(const fs::path& directory, const Manifest& manifest) {
  DS_RETURN_IF_ERROR(WriteFileAtomically(directory / kManifestFile, SerializeManifest(manifest)));
  DS_ASSIGN_OR_RETURN(const Manifest read_back, ReadManifest(directory));
  if (read_back == manifest) return OkStatus();
  return DataLossError(
      fmt::format("{}: not what was written", (directory / kManifestFile).string()));
}

// Gives `unfinished` the name `final`. When that is taken, the two change names in one move and
// the older one goes.
Status TakeName(const fs::path& unfinished, const fs::path& final) {
  std::error_code ignored;
  if (!fs::exists(final, ignored)) return RenameDurably(unfinished, final);
  if (::renameat2(AT_FDCWD, unfinished.c_str(), AT_FDCWD, final.c_str(), RENAME_EXCHANGE) == 0) {
    DS_RETURN_IF_ERROR(SyncDirectory(final.parent_path()));
    return RemoveTree(unfinished);
  }
  if (errno != EINVAL && errno != ENOSYS) return ErrnoError(errno, final.string());
  // A file system without exchange (NFS): between these two lines the step has no checkpoint, and
  // the ones of other steps remain.
  DS_RETURN_IF_ERROR(RemoveTree(final));
  return RenameDurably(unfinished, final);
}

}  // namespace

fs::path UnfinishedDirectory(const fs::path& root, std::int64_t step) {
  return root / (StepDirectoryName(step) + kUnfinishedSuffix);
}

Status BeginCheckpoint(const fs::path& root, std::int64_t step) {
  DS_RETURN_IF_ERROR(MakeDirectories(root));
  DS_RETURN_IF_ERROR(RemoveUnfinished(root));
  return MakeDirectories(UnfinishedDirectory(root, step));
}

StatusOr<fs::path> CommitCheckpoint(const fs::path& root, const Manifest& manifest) {
  const fs::path unfinished = UnfinishedDirectory(root, manifest.step);
  const std::string name = StepDirectoryName(manifest.step);
  Status status = CheckManifest(manifest);
  if (!status.ok()) return status.WithContext("the parts' shards do not make whole tensors");
  DS_RETURN_IF_ERROR(CheckFiles(unfinished, manifest));
  DS_RETURN_IF_ERROR(WriteManifest(unfinished, manifest));
  DS_RETURN_IF_ERROR(SyncDirectory(unfinished));
  DS_RETURN_IF_ERROR(TakeName(unfinished, root / name));
  DS_RETURN_IF_ERROR(WriteFileAtomically(root / kLatestFile, name + "\n"));
  return root / name;
}

void AbandonCheckpoint(const fs::path& root, std::int64_t step) {
  // The failure that led here is what is reported; the next save tries again to remove it.
  std::error_code ignored;
  fs::remove_all(UnfinishedDirectory(root, step), ignored);
}

}  // namespace ds::checkpoint
