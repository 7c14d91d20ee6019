#pragma once

// One rank's share of a checkpoint: which elements it writes, and the writing of them.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/format/shard_file.h"
#include "runtime/checkpoint/stateful.h"

namespace ds::checkpoint {

// The bytes of this rank's file, gaps included.
std::uint64_t RankFileBytes(const std::vector<TensorShard>& shards);

// Creates, writes and syncs the file, then reads it back against its checksums. Returns what it
// holds; a tensor of which this rank writes nothing is listed without shards, so that a tensor
// without elements is known too.
// Requires CheckShard() of every shard.
StatusOr<std::vector<StoredTensor>> WriteRankFile(const std::vector<TensorShard>& shards,
                                                  const std::filesystem::path& path,
                                                  const DataFileCreator& create_file);

}  // namespace ds::checkpoint
