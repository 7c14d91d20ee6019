#include "runtime/checkpoint/stateful.h"

namespace ds::checkpoint {

StatusOr<std::vector<TensorShard>> CollectShards(std::span<Stateful* const> parts) {
  std::vector<TensorShard> shards;
  for (Stateful* part : parts) part->AddShards(&shards);
  for (const TensorShard& shard : shards) DS_RETURN_IF_ERROR(CheckShard(shard));
  return shards;
}

}  // namespace ds::checkpoint
