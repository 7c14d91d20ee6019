#pragma once

// ShardReader: reads parts of a stored shard, verified.
//
// A part is verified by the checksums of the chunks it touches; one that it shares with another
// part is read once while parts ascend. A shard of format 1 that is longer than a chunk has one
// checksum only: it is verified behind its last byte when all of it has been read in order, and not
// at all otherwise.
// Threads: one thread uses a reader.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/unique_fd.h"
#include "runtime/checkpoint_format/manifest.h"

namespace ds::checkpoint {

class ShardReader {
 public:
  // `shard` outlives the reader.
  static StatusOr<ShardReader> Open(const std::filesystem::path& directory,
                                    const StoredShard& shard);

  // Fills `into` with the shard's bytes from `at`. kDataLoss when they are not what was saved.
  // Requires at + into.size() <= shard.length.
  Status Read(std::uint64_t at, std::span<std::byte> into);

 private:
  ShardReader(UniqueFd fd, std::string path, const StoredShard& shard)
      : fd_(std::move(fd)), path_(std::move(path)), shard_(&shard) {}
  Status ReadUnverified(std::uint64_t at, std::span<std::byte> into) const;
  Status ReadChunk(std::uint64_t chunk, std::span<std::byte> into) const;
  Status ReadInOrder(std::uint64_t at, std::span<std::byte> into);

  UniqueFd fd_;
  std::string path_;
  const StoredShard* shard_;
  std::vector<std::byte> held_;  // the chunk that was read in part last
  std::uint64_t held_chunk_ = 0;
  std::uint64_t read_in_order_ = 0;  // bytes from the start, with this checksum
  std::uint32_t crc_in_order_ = 0;
};

}  // namespace ds::checkpoint
