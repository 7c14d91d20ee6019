#pragma once

// Files that are whole or absent: read a file, write one durably, rename into place.
//
// Every function reports errors with the path in the message. A full disk is kResourceExhausted.
// What a save needs takes the FileSystem to work on.
// Threads: all functions are safe to call concurrently on different paths.

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

// The most bytes of a configuration that are read: ds_configs and models' config.json. What is
// larger is another kind of file, given by mistake.
inline constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20;

// Returns the whole file. Refuses more than `max_bytes` (kResourceExhausted).
StatusOr<std::string> ReadFile(const std::filesystem::path& path,
                               std::uint64_t max_bytes = std::uint64_t{1} << 32);

// Tells what a replaced file survives: the end of this process (kWhole), or that of the machine too
// (kDurable), which takes two fsyncs (milliseconds each).
enum class Durability { kWhole, kDurable };

// Writes `content` to `path` so that a reader, or the machine after a crash, sees the old content
// or the new one, never a part: temporary file in the same folder, fsync, rename, fsync of the
// folder. On failure the temporary file is removed and `path` is as it was. Its permissions are
// `mode` less the umask.
Status WriteFileAtomically(const std::filesystem::path& path, std::string_view content,
                           unsigned mode = 0644, Durability durability = Durability::kDurable,
                           FileSystem& system = FileSystem::System());

// A name beside `path` that nobody else has, for what becomes `path` when it is whole.
std::filesystem::path NameTemporary(const std::filesystem::path& path);

// Creates `path` and its parents; fine when they exist.
Status MakeDirectories(const std::filesystem::path& path,
                       FileSystem& system = FileSystem::System());

// Entries of `folder` that are called `prefix` and a number; 0 when it cannot be read. /dev has
// hundreds of others: no path is made for them.
int CountNumbered(const std::filesystem::path& folder, std::string_view prefix);

// Makes renames and creations inside `folder` durable.
Status SyncDirectory(const std::filesystem::path& folder,
                     FileSystem& system = FileSystem::System());

// True for the errno with which a file system says that it has no renames with flags: NFS, CephFS,
// GlusterFS and most of FUSE's.
bool LacksRenameFlags(int error);

// Renames a folder and makes the new name durable. An existing `to` is an error (kAlreadyExists);
// where renames have no flags, an empty folder `to` is replaced.
Status RenameDurably(const std::filesystem::path& from, const std::filesystem::path& to,
                     FileSystem& system = FileSystem::System());

// Removes a file, or a folder with everything below it; fine when there is none.
Status RemoveTree(const std::filesystem::path& path, FileSystem& system = FileSystem::System());

// An append-only text file (events, metrics, logs); each Append is one write(2) of whole lines.
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

// write(2) until all is written, also to a descriptor that does not block. `what` names the file in
// the error.
Status WriteAll(int fd, std::string_view bytes, std::string_view what);

// Writes all of it at `offset` of a file.
Status WriteAllAt(int fd, std::uint64_t offset, std::span<const std::byte> bytes,
                  std::string_view what, FileSystem& system);

// The path as a user would type it here: relative when it lies below the working directory, else as
// it is.
std::string ShortenPath(const std::filesystem::path& path);

// The running program's own path (/proc/self/exe).
StatusOr<std::filesystem::path> FindOwnExecutable();

}  // namespace ds
