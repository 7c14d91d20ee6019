#pragma once

// Functions for reading files, writing them durably and renaming them into place. A reader sees a
// complete file or none.
//
// Every error message contains the path. A full disk is kResourceExhausted. The functions that
// saving a checkpoint needs take the FileSystem to work on. Thread-safe for calls on different
// paths.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"

namespace ds {

// Maximum size of a configuration file (a ds_config or a model's config.json). A larger file is of
// another kind and was given by mistake.
inline constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20;

// Returns the content of the file. Fails with kResourceExhausted above `max_bytes`.
StatusOr<std::string> ReadFile(const std::filesystem::path& path,
                               std::uint64_t max_bytes = std::uint64_t{1} << 32);

// Durability states which crash a replaced file survives. kAtomic: the end of this process.
// kDurable: the end of the machine as well, at the cost of two fsyncs (milliseconds each).
enum class Durability { kAtomic, kDurable };

// Replaces `path` with `content` atomically. A reader sees the old content or the new content,
// never a part; with kDurable this also holds after a crash of the machine. Steps: write a
// temporary file in the same folder, fsync it, rename it, fsync the folder. On failure the
// temporary file is removed and `path` is unchanged. The file's permissions are `mode` less the
// umask.
Status WriteFileAtomically(const std::filesystem::path& path, std::string_view content,
                           unsigned mode = 0644, Durability durability = Durability::kDurable,
                           FileSystem& system = FileSystem::System());

// Returns a unique name in the folder of `path`, for a file to be renamed to `path` when complete.
std::filesystem::path NameTemporary(const std::filesystem::path& path);

// Creates `path` and its parents. Succeeds when they exist.
Status MakeDirectories(const std::filesystem::path& path,
                       FileSystem& system = FileSystem::System());

// Counts the entries of `folder` named `prefix` plus a number. Returns 0 when the folder cannot be
// read. Builds no path per entry, because /dev has hundreds of other entries.
int CountNumbered(const std::filesystem::path& folder, std::string_view prefix);

// Makes renames and creations inside `folder` durable.
Status SyncDirectory(const std::filesystem::path& folder,
                     FileSystem& system = FileSystem::System());

// Returns true for an errno by which a file system reports that it does not support rename flags:
// NFS, CephFS, GlusterFS and most FUSE file systems.
bool LacksRenameFlags(int error);

// Renames a folder and makes the new name durable. Fails with kAlreadyExists when `to` exists. On a
// file system without rename flags, an empty folder `to` is replaced.
Status RenameDurably(const std::filesystem::path& from, const std::filesystem::path& to,
                     FileSystem& system = FileSystem::System());

// Removes a file, or a folder and its contents. Succeeds when `path` does not exist.
Status RemoveTree(const std::filesystem::path& path, FileSystem& system = FileSystem::System());

// An append-only text file (events, metrics, logs). Each Append writes complete lines with one
// write(2).
class AppendFile {
 public:
  static StatusOr<AppendFile> Open(const std::filesystem::path& path);
  Status Append(std::string_view text);
  const std::filesystem::path& path() const { return path_; }

 private:
  AppendFile(UniqueFd fd, std::filesystem::path path)
      : fd_(std::move(fd)), path_(std::move(path)) {}
  UniqueFd fd_;
  std::filesystem::path path_;
};

// Calls write(2) until all bytes are written, also on a non-blocking descriptor. `what` names the
// file in the error message.
Status WriteAll(int fd, std::string_view bytes, std::string_view what);

// Writes all bytes at `offset` of a file.
Status WriteAllAt(int fd, std::uint64_t offset, std::span<const std::byte> bytes,
                  std::string_view what, FileSystem& system);

// Returns the path as a user would type it here: relative when it is below the working directory,
// otherwise unchanged.
std::string ShortenPath(const std::filesystem::path& path);

// Returns the path of the running program (/proc/self/exe).
StatusOr<std::filesystem::path> FindOwnExecutable();

}  // namespace ds
