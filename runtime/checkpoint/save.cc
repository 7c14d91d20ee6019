// SaveCheckpoint: each rank writes its file, rank 0 commits.

#include <fmt/format.h>

#include <unordered_map>
#include <utility>

#include "runtime/checkpoint/agreement.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/format/commit.h"
#include "runtime/checkpoint/format/layout.h"
#include "runtime/checkpoint/rank_file.h"
#include "runtime/checkpoint/tensor_shard.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;

// Rank 0: makes the unfinished folder if the disk has room for what all ranks will write.
Status Begin(const SaveRequest& request, std::int64_t needed_bytes) {
  DS_RETURN_IF_ERROR(BeginCheckpoint(request.root, request.step));
  Status status = CheckFreeSpace(request.root, static_cast<std::uint64_t>(needed_bytes));
  if (!status.ok()) AbandonCheckpoint(request.root, request.step);
  return status;
}

// Every rank: writes its file and says what is in it.
StatusOr<std::string> WriteOwnFile(const SaveRequest& request,
                                   const std::vector<TensorShard>& shards, int rank) {
  const fs::path path = UnfinishedDirectory(request.root, request.step) / ShardFileName(rank);
  DS_ASSIGN_OR_RETURN(const std::vector<StoredTensor> tensors,
                      WriteRankFile(shards, path, request.create_file));
  return SerializeTensors(tensors);
}

// The tensors of all ranks, in the order in which the ranks name them.
StatusOr<std::vector<StoredTensor>> Merge(const std::vector<std::string>& lists) {
  std::vector<StoredTensor> merged;
  std::unordered_map<std::string, std::size_t> places;
  for (const std::string& list : lists) {
    DS_ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors, ParseTensors(list));
    for (StoredTensor& tensor : tensors) {
      const auto [place, added] = places.try_emplace(tensor.name, merged.size());
      if (added) {
        merged.push_back(std::move(tensor));
        continue;
      }
      StoredTensor& known = merged[place->second];
      if (known.dtype != tensor.dtype || known.shape != tensor.shape) {
        return InternalError(
            fmt::format("ranks disagree about dtype or shape of tensor '{}'", tensor.name));
      }
      std::move(tensor.shards.begin(), tensor.shards.end(), std::back_inserter(known.shards));
    }
  }
  return merged;
}

// Rank 0: the manifest, and the final name.
Status Commit(const SaveRequest& request, std::span<Stateful* const> parts,
              const std::vector<std::string>& lists) {
  Manifest manifest;
  manifest.step = request.step;
  manifest.written_by = request.written_by;
  manifest.written_by["world_size"] = lists.size();
  for (const Stateful* part : parts) {
    manifest.state[std::string(part->state_name())] = part->State();
  }
  DS_ASSIGN_OR_RETURN(manifest.tensors, Merge(lists));
  return CommitCheckpoint(request.root, manifest).status();
}

// From the empty unfinished folder to the final name.
Status WriteAndCommit(const SaveRequest& request, std::span<Stateful* const> parts,
                      const std::vector<TensorShard>& shards, comm::Communicator& world) {
  const StatusOr<std::string> own_list = WriteOwnFile(request, shards, world.rank());
  DS_RETURN_IF_ERROR(Agree(own_list.status(), world));
  const std::vector<std::string> lists = GatherTexts(*own_list, world);
  return Agree(world.rank() == 0 ? Commit(request, parts, lists) : OkStatus(), world);
}

}  // namespace

StatusOr<fs::path> SaveCheckpoint(const SaveRequest& request, std::span<Stateful* const> parts,
                                  comm::Communicator& world) {
  const StatusOr<std::vector<TensorShard>> shards = CollectShards(parts);
  DS_RETURN_IF_ERROR(Agree(shards.status(), world));
  const std::int64_t needed =
      SumOverRanks(static_cast<std::int64_t>(RankFileBytes(*shards)), world);
  DS_RETURN_IF_ERROR(Agree(world.rank() == 0 ? Begin(request, needed) : OkStatus(), world));
  const Status status = WriteAndCommit(request, parts, *shards, world);
  if (status.ok()) return request.root / StepDirectoryName(request.step);
  if (world.rank() == 0) AbandonCheckpoint(request.root, request.step);
  // No rank reports the failure while the unfinished folder is still there.
  world.Barrier();
  return status;
}

}  // namespace ds::checkpoint
