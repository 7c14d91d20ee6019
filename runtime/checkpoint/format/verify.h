#pragma once

// Compares what lies on the disk with what was saved: reads and sums every byte of a checkpoint.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/checkpoint/format/manifest.h"

namespace ds::checkpoint {

struct Damage {
  std::string file;    // plain name inside the checkpoint folder
  std::string tensor;  // empty when the file as a whole is affected
  std::string reason;
};

// "rank-00000.bin: tensor 'wte.weight': its checksum is wrong".
std::string Describe(const Damage& damage);

struct VerifyReport {
  std::int64_t step = 0;
  std::uint64_t data_bytes = 0;
  std::size_t tensors = 0;
  std::vector<Damage> damages;  // by file, then by offset
  bool ok() const { return damages.empty(); }
};

// kNotFound when `directory` is not there or holds no manifest; everything else that is wrong is a
// Damage. Files are read in parallel, at most one thread a core.
StatusOr<VerifyReport> VerifyCheckpoint(const std::filesystem::path& directory);

struct NamedShard {
  std::string tensor;
  StoredShard shard;
};

// Reads `shards` back, which all lie in the file `path`, and returns what is wrong with them.
std::vector<Damage> VerifyShards(const std::filesystem::path& path, std::vector<NamedShard> shards);

}  // namespace ds::checkpoint
