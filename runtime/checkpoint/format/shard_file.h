#pragma once

// One rank's data file: raw little-endian elements, nothing else, each shard at a multiple of
// kShardAlignment.
//
// Threads: one writer per file, used by one thread.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/status.h"
#include "runtime/checkpoint/format/manifest.h"

namespace ds::checkpoint {

// Every shard starts at a multiple of this in its file, so that a reader may map it or read it
// past the page cache.
inline constexpr std::uint64_t kShardAlignment = 4096;

// A file that is being written; the seam at which tests fill the disk.
class DataFile {
 public:
  virtual ~DataFile() = default;
  // Writes all bytes at `offset`. Bytes never written read as zero.
  virtual Status WriteAt(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  // Returns when everything written is on the storage.
  virtual Status Sync() = 0;
};

using DataFileCreator =
    std::function<StatusOr<std::unique_ptr<DataFile>>(const std::filesystem::path&)>;

// A new file; an existing one is an error.
StatusOr<std::unique_ptr<DataFile>> CreateDataFile(const std::filesystem::path& path);

class ShardFileWriter {
 public:
  // `name` is the plain file name that the shards will carry.
  ShardFileWriter(std::unique_ptr<DataFile> file, std::string name)
      : file_(std::move(file)), name_(std::move(name)) {}

  // A shard is begun, appended in any number of calls, and ended.
  void BeginShard();
  Status Append(std::span<const std::byte> bytes);
  StoredShard EndShard(Region region);

  Status Sync() { return file_->Sync(); }

 private:
  std::unique_ptr<DataFile> file_;
  std::string name_;
  std::uint64_t shard_offset_ = 0;
  std::uint64_t end_ = 0;
  std::uint32_t crc_ = 0;
};

// Refuses (kResourceExhausted, saying what is needed and free) when the file system of `directory`
// has less than `needed` bytes free.
Status CheckFreeSpace(const std::filesystem::path& directory, std::uint64_t needed);

}  // namespace ds::checkpoint
