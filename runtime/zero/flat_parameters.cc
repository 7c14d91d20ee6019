#include "runtime/zero/flat_parameters.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/zero/storage/block_quantization.h"
#include "runtime/zero/storage/storage_guard.h"

namespace ds::zero {
namespace {

std::vector<std::int64_t> ListNumels(const std::vector<NamedParameter>& parameters) {
  std::vector<std::int64_t> numels;
  numels.reserve(parameters.size());
  for (const NamedParameter& parameter : parameters) numels.push_back(parameter.tensor.numel());
  return numels;
}

ShardGather::Form ChooseForm(const Context& context, const NamedParameter& first) {
  if (!first.rounded) return ShardGather::Form::kExact;
  if (!first.tensor.requires_grad()) {
    const bool keeps = context.sharding.parameters && context.quantized_frozen;
    return keeps ? ShardGather::Form::kStoredQuantized : ShardGather::Form::kExact;
  }
  return context.quantized_weights ? ShardGather::Form::kQuantized : ShardGather::Form::kExact;
}

// The errors of reading a parameter without values, after "parameter NAME ".
constexpr char kSharded[] =
    "is sharded among the ranks, and this rank does not hold its values now: read it in the "
    "forward of a block that has it or declares that it reads it, or within GatheredParameters";
constexpr char kOffloaded[] =
    "has been moved to host memory by offload_states: call reload_states, or run the next forward, "
    "before it is read";
constexpr char kLost[] =
    "has no values any more: they went with the engine that had sharded or offloaded it";

}  // namespace

bool HasValues(const at::Tensor& parameter) {
  if (parameter.numel() == 0) return true;
  return parameter.storage().nbytes() > 0 && !IsReleased(parameter);
}

bool IsReleased(const at::Tensor& parameter) {
  return parameter.has_storage() && IsGuard(parameter.storage());
}

FlatParameters::FlatParameters(const Context& context, BufferPool& pool,
                               std::vector<NamedParameter> parameters,
                               const std::vector<int>& starts, StorageTier storage_tier)
    : context_(context),
      parameters_(std::move(parameters)),
      layout_(ListNumels(parameters_), context.groups.shards->size(), starts,
              // A quantization block must not contain parts of two parameters.
              parameters_[0].rounded    ? kQuantizationBlock
              : context.blockwise_state ? config::kStateBlock
                                        : 1),
      keeps_quantized_(ChooseForm(context, parameters_[0]) == ShardGather::Form::kStoredQuantized),
      gather_(context, ChooseForm(context, parameters_[0])) {
  using device::MemoryUse;
  // Quantised weights stay bytes.
  const c10::ScalarType own = parameters_[0].tensor.scalar_type();
  const c10::ScalarType dtype = at::isFloatingType(own) ? context.dtypes.parameter : own;
  if (context.sharding.parameters) {
    pooled_ = std::make_unique<PooledTensor>(pool, layout_.padded_numel(), dtype, context.device);
    pooled_->Acquire();
    const std::int64_t shard = layout_.shard_numel();
    store_ = keeps_quantized_
                 ? Store(context, {CountQuantizedBytes(shard, QuantizedBits::k8), at::kByte,
                                   MemoryUse::kParameters, storage_tier})
                 : Store(context, {shard, dtype, MemoryUse::kParameters, storage_tier});
  } else {
    store_ = Store(context, {layout_.padded_numel(), dtype, MemoryUse::kParameters});
  }
  if (!is_offloaded()) stored_ = store_.Acquire();
  for (const FlatRange& gap : layout_.gaps()) full().narrow(0, gap.start, gap.count).zero_();
  for (int i = 0; i < layout_.size(); ++i) Attach(i);
  if (pooled_) MakeGuards(kSharded);
}

// A gather may still be running; the members wait for it before the buffer goes.
FlatParameters::~FlatParameters() {
  if (pooled_) AttachGuards();
  for (std::size_t i = 0; i < guards_.size(); ++i) {
    SetGuardError(guards_[i], "parameter " + parameters_[i].name + " " + kLost);
  }
}

void FlatParameters::MakeGuards(const std::string& error) {
  for (int i = 0; i < layout_.size(); ++i) {
    const FlatRange& range = layout_.parameter(i);
    const auto width = static_cast<std::int64_t>(full().itemsize());
    guards_.push_back(zero::MakeGuard("parameter " + parameter(i).name + " " + error,
                                      (range.start + range.count) * width, context_.device));
  }
}

// Makes the flat buffer the storage of the parameter's tensor object. The object's identity is
// kept, and with it all references to it (modules, leaves of the autograd graph).
void FlatParameters::Attach(int i) {
  c10::NoGradGuard no_grad;
  const at::Tensor& parameter = parameters_[static_cast<std::size_t>(i)].tensor;
  const FlatRange& parameter_range = layout_.parameter(i);
  const std::vector<std::int64_t> sizes = parameter.sizes().vec();
  if (HasValues(parameter)) {
    full().narrow(0, parameter_range.start, parameter_range.count).view(sizes).copy_(parameter);
  }
  c10::TensorImpl* impl = parameter.unsafeGetTensorImpl();
  impl->set_storage_and_dtype(full().storage(), full().dtype());
  impl->set_storage_offset(parameter_range.start);
  impl->set_sizes_contiguous(sizes);
}

void FlatParameters::Broadcast() { context_.groups.gradients->Broadcast(full(), 0, tag()); }

Lease FlatParameters::AcquireShard(const FlatRange& range, Access access) {
  DS_CHECK(!keeps_quantized_);
  const std::int64_t first =
      layout_.shard(context_.groups.shards->rank()).start - stored_range().start;
  return store_.Acquire({first + range.start, range.count}, access);
}

Lease FlatParameters::AcquireShard(Access access) {
  return AcquireShard({0, layout_.shard_numel()}, access);
}

void FlatParameters::PrefetchShard(const FlatRange& range) {
  if (is_offloaded()) store_.Prefetch(range);
}

void FlatParameters::OffloadShard(const FlatRange& range) {
  if (is_offloaded()) store_.Offload(range);
}

void FlatParameters::KeepShard() {
  if (!pooled_) return;
  const FlatRange own = layout_.shard(context_.groups.shards->rank());
  const at::Tensor values = full().narrow(0, own.start, own.count);
  {
    const Lease stored = AcquireStored(Access::kOverwrite);
    if (keeps_quantized_) {
      Quantize(values, QuantizedBits::k8, stored.tensor());
    } else {
      stored.tensor().copy_(values);
    }
  }
  Offload();
}

void FlatParameters::Gather() {
  if (!pooled_ || pooled_->present()) return;
  AcquireFull();
  Bring();
}

void FlatParameters::AcquireFull() {
  pooled_->Acquire();
  AttachBuffer();
}

void FlatParameters::AttachBuffer() {
  for (const NamedParameter& parameter : parameters_) {
    parameter.tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(full().storage());
  }
}

// Views that autograd has saved keep the buffer's storage, and see the values again after the next
// AcquireFull.
void FlatParameters::AttachGuards() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(guards_[i]);
  }
}

Lease FlatParameters::AcquireStored(Access access) {
  return keeps_quantized_ ? store_.Acquire(access) : AcquireShard(access);
}

void FlatParameters::Bring() {
  gather_.Begin(full(), AcquireStored(Access::kRead), tag(), exactly_);
}

void FlatParameters::Release() {
  Await();
  if (!pooled_ || !pooled_->present()) return;
  AttachGuards();
  pooled_->Release();
}

void FlatParameters::Await() {
  gather_.Await();
  if (std::exchange(offloads_, false)) store_.Offload();
}

void FlatParameters::Fetch() {
  offloads_ = false;
  if (is_offloaded()) store_.Prefetch();
}

// A running gather holds a lease and overlaps with computation.
void FlatParameters::Offload() {
  if (!is_offloaded()) return;
  offloads_ = is_arriving();
  if (!offloads_) store_.Offload();
}

void FlatParameters::MoveToHost() {
  gather_.DropSecondary();
  if (!pooled_ && guards_.empty()) {
    MakeGuards(kOffloaded);
    AttachGuards();
  }
  stored_ = Lease();
  store_.Release();
}

void FlatParameters::MoveBack() {
  if (!is_offloaded()) stored_ = store_.Acquire();
  if (pooled_ || guards_.empty()) return;
  AttachBuffer();
  guards_.clear();
}

void FlatParameters::Publish() {
  gather_.ForgetSecondary();
  if (pooled_) {
    if (pooled_->present()) Bring();
  } else if (context_.publish_elements.value_or(layout_.padded_numel()) < layout_.padded_numel()) {
    GatherInPieces(*context_.publish_elements);
  } else {
    Bring();
  }
}

// Gathers the same slice of all shards at a time. The slices are not contiguous in the full buffer.
void FlatParameters::GatherInPieces(std::int64_t elements) {
  comm::Communicator& ranks = *context_.groups.shards;
  const std::int64_t shard = layout_.shard_numel(), size = ranks.size();
  const std::int64_t most = std::max(elements / size, FlatLayout::kShardMultiple);
  const at::Tensor rows = full().view({size, shard});
  const at::Tensor buffer = at::empty({size * most}, rows.options());
  const device::LedgerEntry booked(context_.ledger, device::MemoryUse::kCommBuffers,
                                   context_.tier(), static_cast<std::int64_t>(buffer.nbytes()));
  for (std::int64_t start = 0; start < shard; start += most) {
    const std::int64_t count = std::min(most, shard - start);
    const at::Tensor arrived = buffer.narrow(0, 0, size * count);
    ranks.AllGather(arrived, rows[ranks.rank()].narrow(0, start, count), tag());
    rows.narrow(1, start, count).copy_(arrived.view({size, count}));
  }
}

}  // namespace ds::zero
