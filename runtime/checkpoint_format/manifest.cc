#include "runtime/checkpoint_format/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <unordered_set>
#include <utility>

namespace ds::checkpoint {
namespace {

constexpr std::array<std::pair<std::string_view, std::uint64_t>, 10> kDtypes = {{
    {"float32", 4},
    {"bfloat16", 2},
    {"float16", 2},
    {"float64", 8},
    {"int64", 8},
    {"int32", 4},
    {"int16", 2},
    {"int8", 1},
    {"uint8", 1},
    {"bool", 1},
}};

// Returns true for a name that can only mean a file inside the checkpoint folder.
bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

// Expects one checksum per chunk. In version 1 one checksum over the full shard is allowed.
bool HasItsChecksums(const StoredShard& shard, int version) {
  const std::uint64_t chunks = (shard.length + kChunkBytes - 1) / kChunkBytes;
  const bool one = shard.crc32c.size() == 1;
  return shard.crc32c.size() == chunks || (one && (version == 1 || chunks == 0));
}

Status CheckShard(const StoredTensor& tensor, const StoredShard& shard, int version) {
  if (!IsPlainFileName(shard.file))
    return InvalidArgumentError("a shard's file is not a plain name");
  DS_RETURN_IF_ERROR(CheckRegion(tensor.shape, shard.region));
  const std::uint64_t item_size = DtypeSize(tensor.dtype).value();
  if (shard.length != static_cast<std::uint64_t>(shard.region.flat_count) * item_size) {
    return InvalidArgumentError(fmt::format("a shard of {} elements of {} has {} bytes",
                                            shard.region.flat_count, tensor.dtype, shard.length));
  }
  if (!HasItsChecksums(shard, version)) {
    return InvalidArgumentError(
        fmt::format("a shard of {} bytes has {} checksums", shard.length, shard.crc32c.size()));
  }
  if (shard.offset > std::uint64_t{std::numeric_limits<std::int64_t>::max()} - shard.length) {
    return InvalidArgumentError(fmt::format("a shard's offset {} is too large", shard.offset));
  }
  return OkStatus();
}

// Checks that ranges without a box follow one another without gap or overlap.
Status CheckRanges(const StoredTensor& tensor, std::int64_t elements) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  std::int64_t sum = 0;
  bool boxed = false;
  for (const StoredShard& shard : tensor.shards) {
    const Region& region = shard.region;
    if (region.flat_count > elements - sum) return InvalidArgumentError("its shards overlap");
    sum += region.flat_count;
    boxed = boxed || !region.boxes.empty();
    if (region.flat_count > 0) ranges.emplace_back(region.flat_start, region.flat_count);
  }
  if (sum != elements) {
    return InvalidArgumentError(
        fmt::format("its shards hold {} of its {} elements", sum, elements));
  }
  if (boxed) return OkStatus();
  std::sort(ranges.begin(), ranges.end());
  std::int64_t next = 0;
  for (const auto& [start, count] : ranges) {
    if (start != next) return InvalidArgumentError("its shards overlap");
    next = start + count;
  }
  return OkStatus();
}

Status CheckTensor(const StoredTensor& tensor, int version) {
  if (tensor.name.empty()) return InvalidArgumentError("a tensor has no name");
  if (!DtypeSize(tensor.dtype))
    return InvalidArgumentError(fmt::format("unknown dtype '{}'", tensor.dtype));
  DS_ASSIGN_OR_RETURN(const std::int64_t elements, ElementCount(tensor.shape));
  for (const StoredShard& shard : tensor.shards) {
    DS_RETURN_IF_ERROR(CheckShard(tensor, shard, version));
  }
  return CheckRanges(tensor, elements);
}

}  // namespace

std::optional<std::uint64_t> DtypeSize(std::string_view dtype) {
  for (const auto& [name, size] : kDtypes) {
    if (name == dtype) return size;
  }
  return std::nullopt;
}

Status CheckManifest(const Manifest& manifest) {
  if (manifest.step < 0) return InvalidArgumentError("the step is negative");
  std::unordered_set<std::string_view> names;
  for (const StoredTensor& tensor : manifest.tensors) {
    Status status = CheckTensor(tensor, manifest.version);
    if (!status.ok()) return status.WithContext(fmt::format("tensor '{}'", tensor.name));
    if (!names.insert(tensor.name).second) {
      return InvalidArgumentError(fmt::format("tensor '{}' is listed twice", tensor.name));
    }
  }
  return OkStatus();
}

}  // namespace ds::checkpoint
