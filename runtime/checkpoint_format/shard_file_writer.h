#pragma once

// ShardFileWriter writes one rank's data file: raw little-endian elements, nothing else, each shard
// at a multiple of kShardAlignment.
//
// Threads: one writer per file, used by one thread.

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

// Every shard starts at a multiple of this in its file, so that a reader may map it or read it
// past the page cache.
inline constexpr std::uint64_t kShardAlignment = 4096;

class ShardFileWriter {
 public:
  // Creates the file, whose plain name the shards will carry; an existing one is an error.
  static StatusOr<ShardFileWriter> Create(const std::filesystem::path& path, FileSystem& system);

  // A shard is begun, appended in any number of calls, and ended.
  void BeginShard();
  Status Append(std::span<const std::byte> bytes);
  StoredShard EndShard(Region region);

  // Returns when everything written is on the storage. Nothing can be appended then.
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
  std::uint64_t handed_over_ = 0;    // to the storage, up to here
  std::vector<std::uint32_t> crcs_;  // of the shard's chunks; the last one may not be full
};

// Refuses (kResourceExhausted, saying what is needed and free) when the file system of `directory`
// has less than `needed` bytes free.
Status CheckFreeSpace(const std::filesystem::path& directory, std::uint64_t needed);

}  // namespace ds::checkpoint
