// Implements SaveCheckpoint: each rank writes its file, and rank 0 commits.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "runtime/base/byte_size.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/tensor_shard.h"
#include "runtime/checkpoint_format/commit.h"
#include "runtime/checkpoint_format/file_names.h"
#include "runtime/checkpoint_format/shard_file_writer.h"
#include "runtime/checkpoint_format/verify.h"
#include "runtime/comm/agreement.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;

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
      fmt::format("no room for the {} of this rank's file", ByteSize(RankFileBytes(shards))));
}

std::optional<Lineage> ToldLineage(const SaveRequest& request) {
  return request.lineage != nullptr ? std::optional(*request.lineage) : std::nullopt;
}

// Called on rank 0: creates the unfinished folder if the disk has space for the files of all ranks.
StatusOr<UnfinishedCheckpoint> BeginSave(const SaveRequest& request, std::int64_t needed_bytes) {
  DS_ASSIGN_OR_RETURN(
      UnfinishedCheckpoint unfinished,
      BeginCheckpoint(request.root, request.step, ToldLineage(request), *request.file_system));
  const Status room = CheckFreeSpace(request.root, static_cast<std::uint64_t>(needed_bytes));
  if (room.ok()) return unfinished;
  AbandonCheckpoint(unfinished, *request.file_system);
  return room;
}

// Returns the folder that rank 0 has created, on every rank.
fs::path TellDirectory(const SaveRequest& request, const UnfinishedCheckpoint* begun,
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
  manifest.lineage = ToldLineage(request);
  manifest.written_by = request.written_by;
  manifest.written_by["world_size"] = lists.size();
  for (const Stateful* part : parts) {
    manifest.state[std::string(part->state_name())] = part->State();
  }
  DS_ASSIGN_OR_RETURN(manifest.tensors, MergeTensors(lists));
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
  const fs::path directory = TellDirectory(request, unfinished, world);
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

}  // namespace ds::checkpoint
