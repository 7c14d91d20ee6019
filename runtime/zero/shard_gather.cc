#include "runtime/zero/shard_gather.h"

#include <ATen/ops/empty.h>

#include "runtime/zero/block_quantization.h"

namespace ds::zero {
namespace {

constexpr QuantizedBits kWeightBits = QuantizedBits::k8;

}  // namespace

void ShardGather::Bring(const at::Tensor& whole, const at::Tensor& shard, const std::string& tag) {
  if (near_is_true_) {
    context_.groups.near->AllGather(whole, near_.Acquire().tensor(), tag);
    return;
  }
  if (quantized_) {
    BringQuantized(whole, shard, tag);
  } else {
    BringExactly(whole, shard, tag);
  }
  if (context_.groups.near != nullptr) KeepNearShard(whole);
}

void ShardGather::BringExactly(const at::Tensor& whole, const at::Tensor& shard,
                               const std::string& tag) {
  context_.groups.shards->AllGather(whole, shard, tag);
}

void ShardGather::BringQuantized(const at::Tensor& whole, const at::Tensor& shard,
                                 const std::string& tag) {
  comm::Communicator& group = *context_.groups.shards;
  const std::int64_t size = CountQuantizedBytes(shard.numel(), kWeightBits);
  const at::TensorOptions options = at::TensorOptions(at::kByte).device(whole.device());
  const at::Tensor mine = at::empty({size}, options);
  const at::Tensor all = at::empty({size * group.size()}, options);
  Quantize(shard, kWeightBits, mine);
  group.AllGather(all, mine, tag);
  for (int rank = 0; rank < group.size(); ++rank) {
    Dequantize(all.narrow(0, rank * size, size), kWeightBits,
               whole.narrow(0, rank * shard.numel(), shard.numel()));
  }
}

void ShardGather::KeepNearShard(const at::Tensor& whole) {
  const comm::Communicator& group = *context_.groups.near;
  const std::int64_t count = whole.numel() / group.size();
  if (!near_.defined()) {
    near_ = Store(context_, {count, whole.scalar_type(), device::MemoryUse::kParameters});
  }
  near_.Acquire().tensor().copy_(whole.narrow(0, group.rank() * count, count));
  near_is_true_ = true;
}

}  // namespace ds::zero
