#include "runtime/checkpoint/rank_file.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "runtime/base/byte_size.h"
#include "runtime/checkpoint/format/layout.h"
#include "runtime/checkpoint/format/verify.h"
#include "runtime/checkpoint/tensor_shard.h"

namespace ds::checkpoint {
namespace {

namespace fs = std::filesystem;

// How much of a tensor on another device is on the host at a time.
constexpr std::int64_t kStagedElements = std::int64_t{16} << 20;

Share OwnShare(const TensorShard& shard) {
  return ShareOf(shard.data.numel(), shard.replica.index, shard.replica.count);
}

std::span<const std::byte> BytesOf(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

StatusOr<StoredShard> WriteShare(const TensorShard& shard, Share share, ShardFileWriter* writer) {
  const at::Tensor data = shard.data.narrow(0, share.first, share.count);
  writer->BeginShard();
  if (data.is_cpu()) {
    DS_RETURN_IF_ERROR(writer->Append(BytesOf(data)));
  } else {
    for (std::int64_t at = 0; at < share.count; at += kStagedElements) {
      const std::int64_t count = std::min(kStagedElements, share.count - at);
      DS_RETURN_IF_ERROR(writer->Append(BytesOf(data.narrow(0, at, count).cpu())));
    }
  }
  return writer->EndShard({shard.box, shard.flat_start + share.first, share.count});
}

StatusOr<std::vector<StoredTensor>> WriteShares(const std::vector<TensorShard>& shards,
                                                ShardFileWriter* writer) {
  std::vector<StoredTensor> tensors;
  for (const TensorShard& shard : shards) {
    StoredTensor tensor{
        shard.name, std::string(DtypeName(shard.data.scalar_type())), shard.global_shape, {}};
    const Share share = OwnShare(shard);
    if (share.count > 0) {
      DS_ASSIGN_OR_RETURN(StoredShard stored, WriteShare(shard, share, writer));
      tensor.shards.push_back(std::move(stored));
    }
    tensors.push_back(std::move(tensor));
  }
  DS_RETURN_IF_ERROR(writer->Sync());
  return tensors;
}

Status ReadBack(const fs::path& path, const std::vector<StoredTensor>& tensors) {
  std::vector<NamedShard> shards;
  for (const StoredTensor& tensor : tensors) {
    for (const StoredShard& shard : tensor.shards) shards.push_back({tensor.name, shard});
  }
  const std::vector<Damage> damages = VerifyShards(path, std::move(shards));
  if (damages.empty()) return OkStatus();
  return DataLossError(fmt::format("read back after writing: {}", Describe(damages.front())));
}

}  // namespace

std::uint64_t RankFileBytes(const std::vector<TensorShard>& shards) {
  std::uint64_t bytes = 0;
  for (const TensorShard& shard : shards) {
    const std::uint64_t length =
        static_cast<std::uint64_t>(OwnShare(shard).count) * shard.data.itemsize();
    bytes += (length + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
  }
  return bytes;
}

StatusOr<std::vector<StoredTensor>> WriteRankFile(const std::vector<TensorShard>& shards,
                                                  const fs::path& path,
                                                  const DataFileCreator& create_file) {
  DS_ASSIGN_OR_RETURN(std::unique_ptr<DataFile> file, create_file(path));
  ShardFileWriter writer(std::move(file), path.filename().string());
  StatusOr<std::vector<StoredTensor>> tensors = WriteShares(shards, &writer);
  if (tensors.ok()) {
    DS_RETURN_IF_ERROR(ReadBack(path, *tensors));
    return tensors;
  }
  if (tensors.status().code() != StatusCode::kResourceExhausted) return tensors;
  return tensors.status().WithContext(
      fmt::format("no room for the {} of this rank's file", ByteSize(RankFileBytes(shards))));
}

}  // namespace ds::checkpoint
