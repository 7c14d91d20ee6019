// Implements LoadCheckpoint: each rank reads the chunks that overlap its shards.

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/tensor_shard.h"
#include "runtime/checkpoint_format/manifest.h"
#include "runtime/checkpoint_format/shard_reader.h"
#include "runtime/comm/agreement.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;

// Reads the elements of one copy in ranges of bounded size. The ranges end at chunk boundaries of
// the stored shard, so that each chunk is read and verified once.
Status ReadCopy(const Copy& copy, ShardReader* reader, TensorSource& target) {
  const std::int64_t item_size = target.item_size();
  const std::int64_t at_once = kMostBytesAtOnce / item_size;
  for (std::int64_t done = 0; done < copy.count;) {
    const std::int64_t from = copy.source + done;
    const std::int64_t count = std::min(at_once - from % at_once, copy.count - done);
    DS_RETURN_IF_ERROR(target.Write(copy.target + done, count, [&](std::span<std::byte> into) {
      return reader->Read(static_cast<std::uint64_t>(from * item_size), into);
    }));
    done += count;
  }
  return OkStatus();
}

// Reads the requested elements that `stored` holds. Returns their number.
StatusOr<std::int64_t> ReadOverlap(const fs::path& directory, const StoredShard& stored,
                                   std::span<const Copy> copies, TensorSource& target) {
  if (copies.empty()) return 0;
  DS_ASSIGN_OR_RETURN(ShardReader reader, ShardReader::Open(directory, stored));
  std::int64_t read = 0;
  for (const Copy& copy : copies) {
    DS_RETURN_IF_ERROR(ReadCopy(copy, &reader, target));
    read += copy.count;
  }
  return read;
}

Status CheckSameTensor(const TensorShard& wanted, const StoredTensor& stored) {
  if (wanted.placement.global_shape != stored.shape) {
    return InvalidArgumentError(fmt::format("its shape is [{}], the checkpoint's is [{}]",
                                            fmt::join(wanted.placement.global_shape, ", "),
                                            fmt::join(stored.shape, ", ")));
  }
  const std::string_view dtype = DtypeName(wanted.source->dtype());
  if (dtype != stored.dtype) {
    return InvalidArgumentError(
        fmt::format("its dtype is {}, the checkpoint's is {}", dtype, stored.dtype));
  }
  return OkStatus();
}

Status ReadShard(const fs::path& directory, const StoredTensor& stored, const TensorShard& wanted) {
  DS_RETURN_IF_ERROR(CheckSameTensor(wanted, stored));
  const std::vector<Stretch> wanted_stretches = FindStretches(stored.shape, RegionOf(wanted));
  std::int64_t read = 0;
  for (const StoredShard& shard : stored.shards) {
    const auto copies =
        IntersectStretches(FindStretches(stored.shape, shard.region), wanted_stretches);
    DS_ASSIGN_OR_RETURN(const std::int64_t count,
                        ReadOverlap(directory, shard, copies, *wanted.source));
    read += count;
  }
  if (read != wanted.source->count()) {
    return DataLossError(fmt::format("the checkpoint has {} of the {} elements wanted", read,
                                     wanted.source->count()));
  }
  return OkStatus();
}

using TensorPlaces = std::unordered_map<std::string_view, std::size_t>;

TensorPlaces PlacesOf(const Manifest& manifest) {
  TensorPlaces places;
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    places.emplace(manifest.tensors[i].name, i);
  }
  return places;
}

// Fills the shards, and marks in `wanted` the tensors of the manifest that a part requested.
Status ReadShards(const fs::path& directory, const Manifest& manifest,
                  const std::vector<TensorShard>& shards, std::span<std::int64_t> wanted) {
  const TensorPlaces places = PlacesOf(manifest);
  for (const TensorShard& shard : shards) {
    const auto place = places.find(shard.name);
    if (place == places.end()) {
      return NotFoundError(fmt::format(
          "{} has no tensor '{}': it belongs to another model or another optimizer; or, if that is "
          "a buffer of a module, it is older than buffers in checkpoints",
          directory.string(), shard.name));
    }
    wanted[place->second] = 1;
    Status status = ReadShard(directory, manifest.tensors[place->second], shard);
    if (!status.ok()) return status.WithContext(fmt::format("tensor '{}'", shard.name));
  }
  return OkStatus();
}

Status CheckNoneLeft(const Manifest& manifest, std::span<const std::int64_t> wanted) {
  const auto left = std::find(wanted.begin(), wanted.end(), 0);
  if (left == wanted.end()) return OkStatus();
  const StoredTensor& tensor = manifest.tensors[static_cast<std::size_t>(left - wanted.begin())];
  return InvalidArgumentError(fmt::format(
      "the checkpoint holds tensor '{}', which this model and optimizer do not have", tensor.name));
}

Status LoadTensors(const fs::path& directory, const Manifest& manifest,
                   std::span<Stateful* const> parts, comm::Communicator& world) {
  const StatusOr<std::vector<TensorShard>> shards = CollectShards(parts);
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(shards.status(), world));
  const auto count = static_cast<std::int64_t>(manifest.tensors.size());
  const at::Tensor wanted = at::zeros({count}, at::kLong);
  const std::span<std::int64_t> marks(wanted.mutable_data_ptr<std::int64_t>(),
                                      manifest.tensors.size());
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(ReadShards(directory, manifest, *shards, marks), world));
  if (count == 0) return OkStatus();
  const at::Tensor by_anyone = wanted.to(world.control().device());
  world.control().AllReduce(by_anyone, comm::ReduceOp::kMax, "what is loaded");
  wanted.copy_(by_anyone);
  return CheckNoneLeft(manifest, marks);
}

// Calls `visit(part, its state)` for each part until one fails.
template <typename Visit>
Status ForEachState(const Manifest& manifest, std::span<Stateful* const> parts, Visit visit) {
  for (Stateful* part : parts) {
    const std::string name(part->state_name());
    const auto state = manifest.state.find(name);
    if (state == manifest.state.end()) {
      return NotFoundError(fmt::format("the checkpoint has no state of '{}'", name));
    }
    Status status = visit(*part, *state);
    if (!status.ok()) return status.WithContext(fmt::format("state of '{}'", name));
  }
  return OkStatus();
}

}  // namespace

Status LoadCheckpoint(const fs::path& directory, std::span<Stateful* const> parts,
                      comm::Communicator& world, Lineage* lineage) {
  const StatusOr<Manifest> manifest = ReadManifest(directory);
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(manifest.status(), world));
  const auto check = [](const Stateful& part, const nlohmann::json& state) {
    return part.CheckState(state);
  };
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(ForEachState(*manifest, parts, check), world));
  for (Stateful* part : parts) {
    part->ExpectState(manifest->state.at(std::string(part->state_name())));
  }
  DS_RETURN_IF_ERROR(LoadTensors(directory, *manifest, parts, world));
  const auto load = [](Stateful& part, const nlohmann::json& state) {
    return part.LoadState(state);
  };
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(ForEachState(*manifest, parts, load), world));
  if (lineage != nullptr) {
    *lineage = ContinueLineage(manifest->lineage.value_or(AssumeLineage(manifest->step)),
                               manifest->step, *lineage);
  }
  return OkStatus();
}

}  // namespace ds::checkpoint
