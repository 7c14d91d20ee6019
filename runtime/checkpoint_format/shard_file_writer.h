#pragma once

// ShardFileWriter writes the file with one rank's shards of a checkpoint. The file contains only
// raw little-endian elements, with each shard at a multiple of kShardAlignment. The manifest
// records the offset and the checksums of each shard (StoredShard).
//
// Not thread-safe. Use one writer per file.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/checkpoint_format/manifest.h"

namespace ds::checkpoint {

// Alignment of every shard in its file, so that a reader can map it or bypass the page cache.
inline constexpr std::uint64_t kShardAlignment = 4096;

class ShardFileWriter {
 public:
  // Creates the file. The shards will carry its plain name. Fails when the file exists.
  static StatusOr<ShardFileWriter> Create(const std::filesystem::path& path, FileSystem& system);

  // Creates the file, and fails when it exists. StoredShard::file will be its name without the
  // folder.
  void BeginShard();
  Status Append(std::span<const std::byte> bytes);
  StoredShard EndShard(Region region);

  // Syncs all data to storage and closes the file. Do not append afterwards.
  Status Finish();

 private:
  ShardFileWriter(UniqueFd fd, std::filesystem::path path, FileSystem& system)
      : fd_(std::move(fd)), path_(std::move(path)), system_(&system) {}
  void StartWriteback();

  UniqueFd fd_;
  std::filesystem::path path_;
  FileSystem* system_;
  std::uint64_t shard_offset_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t handed_over_ = 0;    // writeback started up to here
  std::vector<std::uint32_t> crcs_;  // of the shard's chunks; the last one may be partial
};

// Fails with kResourceExhausted when the file system of `directory` has less than `needed` bytes
// free. The message states the needed and the free bytes.
Status CheckFreeSpace(const std::filesystem::path& directory, std::uint64_t needed);

}  // namespace ds::checkpoint
