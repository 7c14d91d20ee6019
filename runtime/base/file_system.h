#pragma once

// FileSystem: what a durable write and a file of scratch memory ask of the operating system, one
// system call a function. It is the seam at which tests answer for file systems that this machine
// does not have, for full disks and for failing ones.
//
// Every function returns what its call returns, or the negative errno; it repeats a call that a
// signal interrupted. What only reads a checkpoint reaches nobody's data and stays outside.
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
  virtual ssize_t Read(int fd, std::span<std::byte> bytes, off_t offset);
  // fallocate(2): the range of the file has room on the disk afterwards.
  virtual int Allocate(int fd, off_t offset, off_t length);
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
