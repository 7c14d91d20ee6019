#include "runtime/zero/exchange/shard_gather.h"

#include <ATen/ops/empty.h>

#include <exception>
#include <utility>

#include "runtime/zero/storage/block_quantization.h"

namespace ds::zero {
namespace {

constexpr QuantizedBits kWeightBits = QuantizedBits::k8;

}  // namespace

// The memory of a running call must not be freed before the call has ended. It ends on all ranks
// eventually: successfully, or because one rank has failed.
ShardGather::~ShardGather() {
  try {
    Await();
  } catch (const std::exception&) {
    // The code that ended this rank's part in the group has the error.
  }
}

void ShardGather::Begin(const at::Tensor& full, Lease shard, const std::string& tag, bool exactly) {
  Await();
  pending_.emplace(PendingGather{.full = full, .shard = std::move(shard)});
  const at::Tensor& own = pending_->shard.tensor();
  at::Tensor arriving = full;
  if (form_ == Form::kStoredQuantized) {
    const std::int64_t size = own.numel() * context_.groups.shards->size();
    Book(size);
    arriving = pending_->quantized = at::empty({size}, own.options());
  }
  if (exactly) {
    AllGather(*context_.groups.shards, arriving, own, tag);
  } else if (secondary_is_current_) {
    pending_->shard = secondary_.Acquire();
    AllGather(*context_.secondary.within, arriving, pending_->shard.tensor(), tag);
  } else {
    pending_->keeps_secondary = context_.secondary.within != nullptr;
    if (form_ == Form::kQuantized) {
      BeginQuantized(tag);
    } else {
      AllGather(*context_.groups.shards, arriving, own, tag);
    }
  }
  if (!context_.overlap) Await();
}

void ShardGather::AllGather(comm::Communicator& group, const at::Tensor& full,
                            const at::Tensor& shard, const std::string& tag) {
  if (!context_.overlap) return group.AllGather(full, shard, tag);
  pending_->work = group.AllGatherAsync(full, shard, tag);
}

void ShardGather::BeginQuantized(const std::string& tag) {
  comm::Communicator& group = *context_.groups.shards;
  const at::Tensor& shard = pending_->shard.tensor();
  const std::int64_t size = CountQuantizedBytes(shard.numel(), kWeightBits);
  Book(size * (group.size() + 1));
  const at::TensorOptions options = at::TensorOptions(at::kByte).device(shard.device());
  const at::Tensor mine = at::empty({size}, options);
  pending_->quantized = at::empty({size * group.size()}, options);
  Quantize(shard, kWeightBits, mine);
  AllGather(group, pending_->quantized, mine, tag);
}

void ShardGather::Book(std::int64_t bytes) {
  pending_->booked =
      device::LedgerEntry(context_.ledger, device::MemoryUse::kCommBuffers, context_.tier(), bytes);
}

void ShardGather::Await() {
  if (!pending_) return;
  PendingGather ended = std::move(*pending_);
  pending_.reset();
  if (ended.work) ended.work->wait();
  const int size = ended.quantized.defined() ? context_.groups.shards->size() : 0;
  for (int rank = 0; rank < size; ++rank) {
    const std::int64_t count = ended.full.numel() / size, bytes = ended.quantized.numel() / size;
    Dequantize(ended.quantized.narrow(0, rank * bytes, bytes), kWeightBits,
               ended.full.narrow(0, rank * count, count));
  }
  const bool as_stored = form_ == Form::kStoredQuantized;
  if (ended.keeps_secondary) KeepSecondaryShard(as_stored ? ended.quantized : ended.full);
}

void ShardGather::KeepSecondaryShard(const at::Tensor& full) {
  const comm::Communicator& group = *context_.secondary.within;
  const std::int64_t count = full.numel() / group.size();
  if (!secondary_.defined()) {
    secondary_ = Store(context_, {count, full.scalar_type(), device::MemoryUse::kCommBuffers});
  }
  secondary_.Acquire().tensor().copy_(full.narrow(0, group.rank() * count, count));
  secondary_is_current_ = true;
}

void ShardGather::DropSecondary() {
  ForgetSecondary();
  secondary_ = {};
}

}  // namespace ds::zero
