#pragma once

// ScratchFile: a file without a name in a folder, as memory beside the memory. It ends with the
// process, however that ends: nothing is ever left in the folder.
//
// It is read and written past the page cache (O_DIRECT) where the file system can, so that its
// bytes do not take the place of others in memory. Offsets, lengths and memory are then multiples
// of `facts().alignment`.
//
// Threads: Grow one at a time; the descriptor is anybody's.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"

namespace ds::offload {

struct FolderFacts {
  std::filesystem::path folder;
  std::string file_system;        // "ext4", "tmpfs", or its magic number
  bool in_memory = false;         // a file there saves none
  bool direct = false;            // past the page cache
  std::int64_t alignment = 4096;  // bytes
};

class ScratchFile {
 public:
  // Fails, in words, where the folder is not there, is none, or cannot be written.
  static StatusOr<ScratchFile> Create(const std::filesystem::path& folder, FileSystem& system);
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&&) = delete;
  ~ScratchFile();

  const FolderFacts& facts() const { return facts_; }
  int fd() const { return fd_; }
  std::int64_t size() const { return size_; }

  // Makes room on the disk up to `size` bytes; what has never been written reads as zeros.
  Status Grow(std::int64_t size);

  // Says of what has failed: what, where, why, and how much room the disk has.
  Status DescribeError(int error, const std::string& what) const;

 private:
  ScratchFile(FileSystem& system, FolderFacts facts, int fd);

  FileSystem* system_;
  FolderFacts facts_;
  int fd_;
  std::int64_t size_ = 0;
};

// Bytes that a user may still write into the folder; -1 where nobody knows.
std::int64_t FreeBytes(const std::filesystem::path& folder);

}  // namespace ds::offload
