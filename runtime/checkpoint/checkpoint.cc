#include "runtime/checkpoint/checkpoint.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "runtime/base/byte_size.h"
#include "runtime/checkpoint/tensor_shard.h"
#include "runtime/checkpoint_format/commit.h"
#include "runtime/checkpoint_format/file_names.h"
#include "runtime/checkpoint_format/manifest.h"
#include "runtime/checkpoint_format/shard_file_writer.h"
#include "runtime/checkpoint_format/shard_reader.h"
#include "runtime/checkpoint_format/verify.h"
#include "runtime/comm/agreement.h"

namespace ds::checkpoint {

namespace fs = std::filesystem;

// SaveCheckpoint: each rank writes its file, and rank 0 commits.

namespace {

Share OwnShare(const TensorShard& shard) {
  return ShareOf(shard.source->count(), shard.replica.index, shard.replica.count);
}

StatusOr<StoredShard> WriteShare(const TensorShard& shard, Share share, ShardFileWriter* writer) {
  const std::int64_t at_once = kMostBytesAtOnce / shard.source->item_size();
  writer->BeginShard();
  for (std::int64_t at = 0; at < share.count; at += at_once) {
    const std::int64_t count = std::min(at_once, share.count - at);
    DS_RETURN_IF_ERROR(shard.source->Read(
        share.first + at, count,
        [writer](std::span<const std::byte> bytes) { return writer->Append(bytes); }));
  }
  return writer->EndShard({shard.placement.boxes, shard.flat_start + share.first, share.count});
}

StatusOr<std::vector<StoredTensor>> WriteShares(const std::vector<TensorShard>& shards,
                                                ShardFileWriter* writer) {
  std::vector<StoredTensor> tensors;
  for (const TensorShard& shard : shards) {
    StoredTensor tensor{shard.name,
                        std::string(DtypeName(shard.source->dtype())),
                        shard.placement.global_shape,
                        {}};
    const Share share = OwnShare(shard);
    if (share.count > 0) {
      StatusOr<StoredShard> stored = WriteShare(shard, share, writer);
      if (!stored.ok()) {
        return stored.status().WithContext(fmt::format("tensor '{}'", shard.name));
      }
      tensor.shards.push_back(*std::move(stored));
    }
    tensors.push_back(std::move(tensor));
  }
  DS_RETURN_IF_ERROR(writer->Finish());
  return tensors;
}

Status ReadBack(const fs::path& path, const std::vector<StoredTensor>& tensors) {
  std::vector<NamedShard> shards;
  for (const StoredTensor& tensor : tensors) {
    for (const StoredShard& shard : tensor.shards) shards.push_back({tensor.name, shard});
  }
  DS_ASSIGN_OR_RETURN(const std::vector<Damage> damages, VerifyShards(path, std::move(shards)));
  if (damages.empty()) return OkStatus();
  return DataLossError(fmt::format("read back after writing: {}", Describe(damages.front())));
}

// Returns the size of this rank's file in bytes, gaps included.
std::uint64_t RankFileBytes(const std::vector<TensorShard>& shards) {
  std::uint64_t bytes = 0;
  for (const TensorShard& shard : shards) {
    const auto length =
        static_cast<std::uint64_t>(OwnShare(shard).count * shard.source->item_size());
    bytes += (length + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
  }
  return bytes;
}

// Creates, writes and syncs the file, then reads it back and verifies its checksums. Returns its
// content. A tensor without elements in this file is listed without shards, so that an empty tensor
// is known, too. Requires CheckShard() of every shard.
StatusOr<std::vector<StoredTensor>> WriteRankFile(const std::vector<TensorShard>& shards,
                                                  const fs::path& path, FileSystem& system) {
  DS_ASSIGN_OR_RETURN(ShardFileWriter writer, ShardFileWriter::Create(path, system));
  StatusOr<std::vector<StoredTensor>> tensors = WriteShares(shards, &writer);
  if (tensors.ok()) {
    DS_RETURN_IF_ERROR(ReadBack(path, *tensors));
    return tensors;
  }
  if (tensors.status().code() != StatusCode::kResourceExhausted) return tensors;
  return tensors.status().WithContext(
      fmt::format("no space for the {} of this rank's file", ByteSize(RankFileBytes(shards))));
}

std::optional<Lineage> GivenLineage(const SaveRequest& request) {
  return request.lineage != nullptr ? std::optional(*request.lineage) : std::nullopt;
}

// Called on rank 0: creates the unfinished folder if the disk has space for the files of all ranks.
StatusOr<UnfinishedCheckpoint> BeginSave(const SaveRequest& request, std::int64_t needed_bytes) {
  DS_ASSIGN_OR_RETURN(
      UnfinishedCheckpoint unfinished,
      BeginCheckpoint(request.root, request.step, GivenLineage(request), *request.file_system));
  const Status fits = CheckFreeSpace(request.root, static_cast<std::uint64_t>(needed_bytes));
  if (fits.ok()) return unfinished;
  AbandonCheckpoint(unfinished, *request.file_system);
  return fits;
}

// Returns the folder that rank 0 has created, on every rank.
fs::path ShareDirectory(const SaveRequest& request, const UnfinishedCheckpoint* begun,
                        comm::Communicator& world) {
  const auto own = begun != nullptr ? static_cast<std::int64_t>(begun->name.nonce) : 0;
  const std::int64_t nonce = comm::GatherNumber(own, world).front();
  const std::int64_t generation = request.lineage != nullptr ? request.lineage->generation : 0;
  return UnfinishedDirectory(request.root,
                             {request.step, generation, static_cast<std::uint64_t>(nonce)});
}

// Called on every rank: writes its file and returns the serialized list of its tensors.
StatusOr<std::string> WriteOwnFile(const SaveRequest& request, const fs::path& directory,
                                   const std::vector<TensorShard>& shards, int rank) {
  DS_ASSIGN_OR_RETURN(const std::vector<StoredTensor> tensors,
                      WriteRankFile(shards, directory / ShardFileName(rank), *request.file_system));
  return SerializeTensors(tensors);
}

// Merges the tensors of all ranks, in the order in which the ranks list them.
StatusOr<std::vector<StoredTensor>> MergeTensors(const std::vector<std::string>& lists) {
  std::vector<StoredTensor> merged;
  std::unordered_map<std::string, std::size_t> indices;
  for (const std::string& list : lists) {
    DS_ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors, ParseTensors(list));
    for (StoredTensor& tensor : tensors) {
      const auto [known_at, added] = indices.try_emplace(tensor.name, merged.size());
      if (added) {
        merged.push_back(std::move(tensor));
        continue;
      }
      StoredTensor& known = merged[known_at->second];
      if (known.dtype != tensor.dtype || known.shape != tensor.shape) {
        return InternalError(
            fmt::format("ranks disagree about dtype or shape of tensor '{}'", tensor.name));
      }
      std::move(tensor.shards.begin(), tensor.shards.end(), std::back_inserter(known.shards));
    }
  }
  return merged;
}

// Called on rank 0: writes the manifest and renames the folder to its final name.
Status CommitSave(const SaveRequest& request, const UnfinishedCheckpoint& unfinished,
                  std::span<Stateful* const> parts, const std::vector<std::string>& lists) {
  Manifest manifest;
  manifest.step = request.step;
  manifest.lineage = GivenLineage(request);
  manifest.written_by = request.written_by;
  manifest.written_by["world_size"] = lists.size();
  for (const Stateful* part : parts) {
    manifest.state[std::string(part->state_name())] = part->State();
  }
  DS_ASSIGN_OR_RETURN(manifest.tensors, MergeTensors(lists));
  if (request.write_more) {
    DS_RETURN_IF_ERROR(request.write_more(UnfinishedDirectory(unfinished.root, unfinished.name)));
  }
  return CommitCheckpoint(unfinished, manifest, *request.file_system).status();
}

Status CheckSavable(std::span<Stateful* const> parts) {
  for (const Stateful* part : parts) DS_RETURN_IF_ERROR(part->CheckSavable());
  return OkStatus();
}

// Performs the save after rank 0 has created the unfinished folder, up to the final name.
Status WriteAndCommit(const SaveRequest& request, const UnfinishedCheckpoint* unfinished,
                      std::span<Stateful* const> parts, const std::vector<TensorShard>& shards,
                      comm::Communicator& world) {
  const fs::path directory = ShareDirectory(request, unfinished, world);
  const StatusOr<std::string> own_list = WriteOwnFile(request, directory, shards, world.rank());
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(own_list.status(), world));
  const std::vector<std::string> lists = comm::GatherTexts(*own_list, world);
  const Status committed =
      unfinished != nullptr ? CommitSave(request, *unfinished, parts, lists) : OkStatus();
  return comm::AgreeOnStatus(committed, world);
}

}  // namespace

StatusOr<fs::path> SaveCheckpoint(const SaveRequest& request, std::span<Stateful* const> parts,
                                  comm::Communicator& world) {
  DS_RETURN_IF_ERROR(AgreeOnStatus(CheckSavable(parts), world));
  const StatusOr<std::vector<TensorShard>> shards = CollectShards(parts);
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(shards.status(), world));
  const std::int64_t needed =
      comm::SumOverRanks(static_cast<std::int64_t>(RankFileBytes(*shards)), world);
  std::optional<UnfinishedCheckpoint> unfinished;
  Status begun;
  if (world.rank() == 0) {
    StatusOr<UnfinishedCheckpoint> made = BeginSave(request, needed);
    begun = made.status();
    if (made.ok()) unfinished = *std::move(made);
  }
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(begun, world));
  const Status status =
      WriteAndCommit(request, unfinished ? &*unfinished : nullptr, parts, *shards, world);
  if (status.ok()) {
    Lineage* const lineage = request.lineage;
    if (lineage != nullptr) {
      *lineage = ContinueLineage(*lineage, request.step, *lineage);
    }
    return request.root / StepDirectoryName(request.step);
  }
  if (unfinished) AbandonCheckpoint(*unfinished, *request.file_system);
  // Wait, so that no rank reports the failure before the unfinished folder is removed.
  world.control().Barrier();
  return status;
}

// LoadCheckpoint: each rank reads the chunks that overlap its shards.

namespace {

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

// Returns the shard with a source in the stored dtype, if both are floating-point.
TensorShard Converted(TensorShard wanted, const StoredTensor& stored) {
  const std::optional<at::ScalarType> dtype = FindDtype(stored.dtype);
  if (dtype && *dtype != wanted.source->dtype() && at::isFloatingType(*dtype) &&
      at::isFloatingType(wanted.source->dtype())) {
    wanted.source = ConvertSource(std::move(wanted.source), *dtype);
  }
  return wanted;
}

// Requires CheckSameTensor.
Status ReadShard(const fs::path& directory, const StoredTensor& stored, const TensorShard& wanted) {
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

using TensorIndices = std::unordered_map<std::string_view, std::size_t>;

TensorIndices IndicesOf(const Manifest& manifest) {
  TensorIndices indices;
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    indices.emplace(manifest.tensors[i].name, i);
  }
  return indices;
}

// A requested shard, and the tensor that has it.
struct Match {
  TensorShard wanted;
  const StoredTensor* stored = nullptr;
};

// Finds the shards' tensors, and marks in `wanted` those of the manifest that a part requested.
StatusOr<std::vector<Match>> MatchShards(const fs::path& directory, const Manifest& manifest,
                                         const std::vector<TensorShard>& shards,
                                         const LoadRules& rules, std::span<std::int64_t> wanted) {
  const TensorIndices indices = IndicesOf(manifest);
  std::vector<Match> matches;
  for (const TensorShard& shard : shards) {
    const auto index = indices.find(shard.name);
    if (index == indices.end() && rules.keeps_missing) continue;
    if (index == indices.end()) {
      return NotFoundError(fmt::format(
          "{} has no tensor '{}': it belongs to another model or another optimizer; or, if that is "
          "a buffer of a module, it is older than buffers in checkpoints",
          directory.string(), shard.name));
    }
    wanted[index->second] = 1;
    const StoredTensor& stored = manifest.tensors[index->second];
    matches.push_back({rules.converts ? Converted(shard, stored) : shard, &stored});
    const Status same = CheckSameTensor(matches.back().wanted, stored);
    if (!same.ok()) return same.WithContext(fmt::format("tensor '{}'", shard.name));
  }
  return matches;
}

Status ReadMatches(const fs::path& directory, const std::vector<Match>& matches) {
  for (const auto& [wanted, stored] : matches) {
    const Status read = ReadShard(directory, *stored, wanted);
    if (!read.ok()) return read.WithContext(fmt::format("tensor '{}'", wanted.name));
  }
  return OkStatus();
}

Status CheckNoneLeft(const Manifest& manifest, const LoadRules& rules,
                     std::span<const std::int64_t> wanted) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::string& name = manifest.tensors[i].name;
    if (wanted[i] != 0 || (rules.skips && rules.skips(name))) continue;
    return InvalidArgumentError(fmt::format(
        "the checkpoint holds tensor '{}', which this model and optimizer do not have", name));
  }
  return OkStatus();
}

// Writes nothing until all ranks' tensors have names, shapes and dtypes of the checkpoint.
Status LoadTensors(const fs::path& directory, const Manifest& manifest,
                   std::span<Stateful* const> parts, const LoadRules& rules,
                   comm::Communicator& world) {
  const StatusOr<std::vector<TensorShard>> shards = CollectShards(parts);
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(shards.status(), world));
  const auto count = static_cast<std::int64_t>(manifest.tensors.size());
  const at::Tensor wanted = at::zeros({count}, at::kLong);
  const std::span<std::int64_t> marks(wanted.mutable_data_ptr<std::int64_t>(),
                                      manifest.tensors.size());
  const auto matches = MatchShards(directory, manifest, *shards, rules, marks);
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(matches.status(), world));
  if (count == 0) return OkStatus();
  const at::Tensor by_anyone = wanted.to(world.control().device());
  world.control().AllReduce(by_anyone, comm::ReduceOp::kMax, "loaded tensors");
  wanted.copy_(by_anyone);
  DS_RETURN_IF_ERROR(CheckNoneLeft(manifest, rules, marks));
  return comm::AgreeOnStatus(ReadMatches(directory, *matches), world);
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
                      comm::Communicator& world, Lineage* lineage, const LoadRules& rules) {
  const StatusOr<Manifest> manifest = ReadManifest(directory);
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(manifest.status(), world));
  const auto check = [](const Stateful& part, const nlohmann::json& state) {
    return part.CheckState(state);
  };
  DS_RETURN_IF_ERROR(comm::AgreeOnStatus(ForEachState(*manifest, parts, check), world));
  for (Stateful* part : parts) {
    part->ExpectState(manifest->state.at(std::string(part->state_name())));
  }
  DS_RETURN_IF_ERROR(LoadTensors(directory, *manifest, parts, rules, world));
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

StatusOr<std::map<std::string, at::Tensor>> ReadWeights(const fs::path& directory) {
  DS_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(directory));
  std::map<std::string, at::Tensor> weights;
  for (const StoredTensor& stored : manifest.tensors) {
    if (IsOptimizerState(stored.name)) continue;
    const std::optional<at::ScalarType> dtype = FindDtype(stored.dtype);
    if (!dtype) return DataLossError("tensor '" + stored.name + "' has dtype " + stored.dtype);
    const at::Tensor values = at::empty(stored.shape, *dtype);
    const TensorShard whole{.name = stored.name,
                            .placement = {.global_shape = stored.shape},
                            .source = SourceOf(values.view({-1}))};
    const Status read = ReadShard(directory, stored, whole);
    if (!read.ok()) return read.WithContext("tensor '" + stored.name + "'");
    weights.emplace(stored.name, values);
  }
  return weights;
}

}  // namespace ds::checkpoint
