#pragma once

// Verifies a checkpoint: reads every byte and compares its checksums.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint_format/manifest.h"

namespace ds::checkpoint {

struct Damage {
  std::string file;    // plain name inside the checkpoint folder
  std::string tensor;  // empty when the entire file is affected
  std::string reason;
};

// Returns "rank-00000.bin: tensor 'wte.weight': its checksum is wrong".
std::string Describe(const Damage& damage);

struct VerifyReport {
  std::int64_t step = 0;
  std::uint64_t data_bytes = 0;
  std::size_t tensors = 0;
  std::vector<Damage> damages;  // sorted by file, then by offset
  bool ok() const { return damages.empty(); }
};

// Verifies the checkpoint in `directory`. Fails with kNotFound when `directory` does not exist or
// holds no manifest. Each Damage is proven by a checksum, a size, the text of the manifest or a
// missing file. Fails with kUnavailable when no damage is proven and a file cannot be read now
// (reading.h): the checkpoint may be good. Reads files in parallel, with at most one thread per
// core.
StatusOr<VerifyReport> VerifyCheckpoint(const std::filesystem::path& directory,
                                        FileSystem& system = FileSystem::System());

struct NamedShard {
  std::string tensor;
  StoredShard shard;
};

// Reads `shards`, which must all be in the file `path`, and returns the damages. Fails with
// kUnavailable like VerifyCheckpoint.
StatusOr<std::vector<Damage>> VerifyShards(const std::filesystem::path& path,
                                           std::vector<NamedShard> shards,
                                           FileSystem& system = FileSystem::System());

}  // namespace ds::checkpoint
