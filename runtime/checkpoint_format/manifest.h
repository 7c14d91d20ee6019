#pragma once

// The manifest lists the tensors of a checkpoint, with the location and checksums of each shard.
// FORMAT.md describes the text.
//
// Parsing is safe on hostile input: every number is bounded, and every name is checked to be a
// plain file name, before any file is opened or memory allocated.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/file_system.h"
#include "runtime/base/status.h"
#include "runtime/checkpoint_format/lineage.h"
#include "runtime/checkpoint_format/regions.h"

namespace ds::checkpoint {

inline constexpr int kFormatVersion = 2;        // version that is written
inline constexpr int kOldestFormatVersion = 1;  // oldest version that can be read

// Bytes of a shard that one checksum covers, so that partial reads can be verified.
inline constexpr std::uint64_t kChunkBytes = std::uint64_t{4} << 20;

struct StoredShard {
  Region region;
  std::string file;  // plain name inside the checkpoint folder
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  // in bytes: elements times the dtype's size
  // One checksum per chunk of kChunkBytes, counted from the shard's start; the last chunk may be
  // shorter. Format 1 has one checksum over the full shard, of any length.
  std::vector<std::uint32_t> crc32c;

  // Returns the bytes that each checksum covers, except for the last one.
  std::uint64_t ChecksummedBytes() const { return crc32c.size() == 1 ? length : kChunkBytes; }
  friend bool operator==(const StoredShard&, const StoredShard&) = default;
};

struct StoredTensor {
  std::string name;
  std::string dtype;  // one of DtypeSize()'s names
  Shape shape;
  std::vector<StoredShard> shards;
  friend bool operator==(const StoredTensor&, const StoredTensor&) = default;
};

struct Manifest {
  int version = kFormatVersion;
  std::int64_t step = 0;
  std::vector<StoredTensor> tensors;                     // names are unique
  nlohmann::json state = nlohmann::json::object();       // keyed by Stateful::state_name()
  nlohmann::json written_by = nlohmann::json::object();  // informational
  std::optional<Lineage> lineage;                        // nullopt means AssumeLineage()
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// Returns the bytes per element of "float32", "bfloat16", "float16", "float64", "int64", "int32",
// "int16", "int8", "uint8", "bool"; nullopt for any other name.
std::optional<std::uint64_t> DtypeSize(std::string_view dtype);

// Checks that names, shapes, regions, lengths and checksums fit one another and the version, and
// that the shards of each tensor cover it exactly. ParseManifest calls this, too.
Status CheckManifest(const Manifest& manifest);

// Returns the text, which ends with a checksum of itself. Requires CheckManifest(manifest).ok().
std::string SerializeManifest(const Manifest& manifest);

StatusOr<Manifest> ParseManifest(std::string_view text);

// Serializes only the list of tensors, without the checks of CheckManifest. A rank uses it to
// report its tensors to rank 0.
std::string SerializeTensors(std::span<const StoredTensor> tensors);
StatusOr<std::vector<StoredTensor>> ParseTensors(std::string_view text);

// Reads and parses directory/manifest.json. Fails with kNotFound when there is none, kDataLoss when
// it is damaged, and kUnavailable when it cannot be read now (reading.h).
StatusOr<Manifest> ReadManifest(const std::filesystem::path& directory,
                                FileSystem& system = FileSystem::System());

}  // namespace ds::checkpoint
