#pragma once

// FileSystem: what a durable write asks of the operating system, one system call a function. It is
// the seam at which tests answer for file systems that this machine does not have, for full disks
// and for failing ones.
//
// Every function returns what its call returns, or the negative errno; it repeats a call that a
// signal interrupted. Errors of reading reach nobody's data and stay outside.
// Threads: all functions are safe to call concurrently.

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <span>

namespace ds {

class FileSystem {
 public:
  // The operating system's own.
  static FileSystem& System();

  virtual ~FileSystem() = default;

  virtual int Open(const std::filesystem::path& path, int flags, mode_t mode);
  virtual int MakeDirectory(const std::filesystem::path& path);
  virtual ssize_t Write(int fd, std::span<const std::byte> bytes, off_t offset);
  virtual int Sync(int fd);
  // `flags` as renameat2 takes them; 0 is rename(2).
  virtual int Rename(const std::filesystem::path& from, const std::filesystem::path& to,
                     unsigned flags);
  // `flags` as unlinkat takes them.
  virtual int Unlink(const std::filesystem::path& path, int flags);
  // flock(2).
  virtual int Lock(int fd, int operation);
  // NFS reports here what it could not write.
  virtual int Close(int fd);
};

}  // namespace ds
