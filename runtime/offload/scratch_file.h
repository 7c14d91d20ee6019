#pragma once

// ScratchFile is an unnamed file in a folder, used to extend memory. The file disappears when the
// process ends for any reason, so nothing is left in the folder.
//
// Transfers bypass the page cache (O_DIRECT) if the file system supports it, so that they do not
// evict other pages. Offsets, lengths and memory addresses must then be multiples of
// `facts().alignment`.
//
// Call Grow from one thread at a time. Any thread may use the descriptor.

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
  bool in_memory = false;         // files there use memory, too
  bool direct = false;            // bypasses the page cache
  std::int64_t alignment = 4096;  // in bytes
};

class ScratchFile {
 public:
  // Fails with an explanation when the folder does not exist, is not a folder, or is not writable.
  static StatusOr<ScratchFile> Create(const std::filesystem::path& folder, FileSystem& system);
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&&) = delete;
  ~ScratchFile();

  const FolderFacts& facts() const { return facts_; }
  int fd() const { return fd_; }
  std::int64_t size() const { return size_; }

  // Reserves disk space up to `size` bytes. Bytes that were never written read as zeros.
  Status Grow(std::int64_t size);

  // Returns an error that names the operation, the file, the cause and the free disk space.
  Status DescribeError(int error, const std::string& what) const;

 private:
  ScratchFile(FileSystem& system, FolderFacts facts, int fd);

  FileSystem* system_;
  FolderFacts facts_;
  int fd_;
  std::int64_t size_ = 0;
};

// Returns the number of bytes that the user may still write in the folder; -1 if unknown.
std::int64_t FreeBytes(const std::filesystem::path& folder);

}  // namespace ds::offload
