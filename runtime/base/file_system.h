#pragma once

// FileSystem wraps the system calls that durable writes and scratch files use, one call per
// function. Tests override it to simulate other file systems, full disks and disks that fail.
//
// Every function returns the result of its system call, or the negative errno. It retries a call
// that a signal interrupted. Reads that cannot damage data, such as loading a checkpoint's
// shards, may bypass this class. Thread-safe.

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <span>

namespace ds {

class FileSystem {
 public:
  // Returns the implementation that makes the real system calls.
  static FileSystem& System();

  virtual ~FileSystem() = default;

  virtual int Open(const std::filesystem::path& path, int flags, mode_t mode);
  virtual int MakeDirectory(const std::filesystem::path& path);
  virtual ssize_t Write(int fd, std::span<const std::byte> bytes, off_t offset);
  virtual ssize_t Read(int fd, std::span<std::byte> bytes, off_t offset);
  // Calls fallocate(2), which reserves disk space for the range of the file.
  virtual int Allocate(int fd, off_t offset, off_t length);
  virtual int Sync(int fd);
  // Renames as renameat2(2) does with `flags`; 0 means rename(2).
  virtual int Rename(const std::filesystem::path& from, const std::filesystem::path& to,
                     unsigned flags);
  // Unlinks as unlinkat(2) does with `flags`.
  virtual int Unlink(const std::filesystem::path& path, int flags);
  // Calls flock(2).
  virtual int Lock(int fd, int operation);
  // Closes the descriptor. NFS reports failed writes here.
  virtual int Close(int fd);
};

}  // namespace ds
