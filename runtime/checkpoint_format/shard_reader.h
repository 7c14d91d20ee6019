#pragma once

// ShardReader reads and verifies parts of a stored shard.
//
// A part is verified with the checksums of its chunks. A chunk shared by two parts is read once if
// the parts ascend. A shard of format 1 longer than a chunk has only one checksum. It is verified
// at its last byte if the full shard was read in order, and not at all otherwise. Not thread-safe.

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
  // Opens the file of `shard`, which must outlive the reader.
  static StatusOr<ShardReader> Open(const std::filesystem::path& directory,
                                    const StoredShard& shard);

  // Fills `into` with the shard's bytes from `at`. Fails with kDataLoss when a checksum does not
  // match. Requires at + into.size() <= shard.length.
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
  std::vector<std::byte> held_;  // the chunk that was last read in part
  std::uint64_t held_chunk_ = 0;
  // Bytes read from the start without a gap, and their checksum.
  std::uint64_t read_in_order_ = 0;
  std::uint32_t crc_in_order_ = 0;
};

}  // namespace ds::checkpoint
