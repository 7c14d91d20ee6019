#pragma once

// Compares what lies on the disk with what was saved: reads and sums every byte of a checkpoint.

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

// kNotFound when `directory` is not there or holds no manifest. A Damage is proven: by a checksum,
// a size, the text of the manifest, a missing file. kUnavailable when nothing is proven and a file
// cannot be read now (reading.h): the checkpoint may be good. Files are read in parallel, at most
// one thread a core.
StatusOr<VerifyReport> VerifyCheckpoint(const std::filesystem::path& directory,
                                        FileSystem& system = FileSystem::System());

struct NamedShard {
  std::string tensor;
  StoredShard shard;
};

// Reads `shards` back, which all lie in the file `path`, and returns the damages. kUnavailable as
// VerifyCheckpoint.
StatusOr<std::vector<Damage>> VerifyShards(const std::filesystem::path& path,
                                           std::vector<NamedShard> shards,
                                           FileSystem& system = FileSystem::System());

}  // namespace ds::checkpoint
