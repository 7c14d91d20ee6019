#include "runtime/zero/flat_gradients.h"

#include <ATen/ops/empty.h>

#include <cmath>
#include <exception>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/comm/work.h"
#include "runtime/device/finite_check.h"
#include "runtime/optim/kernels/gradient_norm.h"
#include "runtime/zero/exchange/sparse_rows.h"
#include "runtime/zero/storage/store_source.h"

namespace ds::zero {

using device::MemoryUse;

struct FlatGradients::PendingReduction {
  device::LedgerEntry booked = {};      // for `full`, if it is a copy
  at::Tensor full = {};                 // the tensor that is sent
  at::Tensor reduced = {};              // receives the sum over ranks
  std::optional<comm::Work> work = {};  // none: the call has ended, or `rounded` runs it
  std::optional<QuantizedReduction> rounded = {};
  Lease target;       // the destination of the mean
  bool first = true;  // the first contribution to target
};

FlatGradients::FlatGradients(const Context& context, BufferPool& pool, const FlatLayout& layout,
                             GradientTravel wire)
    : context_(context),
      layout_(layout),
      wire_(std::move(wire)),
      storage_tier_(context.tiers.gradients),
      received_(static_cast<std::size_t>(layout.size()), false),
      received_in_step_(received_) {
  if (context.loco && wire_.rounded) {
    feedbacks_.emplace(
        LossFeedbacks{.first = {context, *context.loco}, .second = {context, *context.loco}});
  }
  if (context.sharding.gradients) {
    block_ = std::make_unique<PooledTensor>(pool, layout.padded_numel(), arrival_dtype(),
                                            context.device);
  }
}

void FlatGradients::set_storage_tier(StorageTier storage_tier, Measure measure) {
  storage_tier_ = storage_tier;
  measure_ = std::move(measure);
}

FlatRange FlatGradients::optimizer_range() const {
  return {0, context_.sharding.optimizer ? layout_.shard_numel() : layout_.padded_numel()};
}

std::int64_t FlatGradients::travelling_bytes() const {
  return layout_.padded_numel() * static_cast<std::int64_t>(c10::elementSize(wire_.dtype));
}

Lease FlatGradients::AcquireBuffer() {
  Await();
  const bool is_there = block_ ? block_->present() : full_.defined();
  if (block_) {
    block_->Acquire();
  } else if (!is_there) {
    full_ =
        Store(context_, {layout_.padded_numel(), context_.dtypes.gradient, MemoryUse::kGradients});
  }
  Lease buffer = block_ ? Lease(block_->tensor()) : full_.Acquire();
  if (is_there) return buffer;
  if (block_ && own_.is_offloaded()) own_.Prefetch();  // the reduction will add to it
  received_.assign(received_.size(), false);
  for (const FlatRange& gap : layout_.gaps()) {
    buffer.tensor().narrow(0, gap.start, gap.count).zero_();
  }
  return buffer;
}

// All gradients are added to an existing mean, even for parameters without a gradient on this rank.
Lease FlatGradients::AcquireForArrival() {
  Lease buffer = AcquireBuffer();
  if (std::exchange(is_mean_, false)) received_.assign(received_.size(), true);
  return buffer;
}

at::Tensor FlatGradients::ViewOwnPart(const at::Tensor& full) const {
  const FlatRange own = layout_.shard(context_.groups.shards->rank());
  return full.narrow(0, own.start, own.count);
}

void FlatGradients::Add(int i, const at::Tensor& gradient) {
  if (queue_ != nullptr) {
    queue_->push_back([this, i, gradient] { Add(i, gradient); });
    return;
  }
  const FlatRange& parameter_range = layout_.parameter(i);
  const Lease buffer = AcquireForArrival();
  const at::Tensor arrived =
      buffer.tensor().narrow(0, parameter_range.start, parameter_range.count);
  const at::Tensor target = arrived.view(gradient.sizes());
  const auto index = static_cast<std::size_t>(i);
  if (received_[index]) {
    target.add_(gradient, arrival_factor_);
  } else {
    target.copy_(gradient);
    if (arrival_factor_ != 1.0) target.mul_(arrival_factor_);
  }
  EndArrival(i, arrived);
}

void FlatGradients::PutOrAdd(int i, const at::Tensor& parameter,
                             const gradients::WriteGradient& write,
                             gradients::DestinationDtype dtype) {
  if (Put(i, parameter, write, dtype)) return;
  at::Tensor gradient = at::empty(parameter.sizes(), parameter.options().requires_grad(false));
  write(gradient, /*beta=*/0.0F);
  Add(i, gradient);
}

bool FlatGradients::Put(int i, const at::Tensor& parameter, const gradients::WriteGradient& write,
                        gradients::DestinationDtype dtype) {
  if (queue_ != nullptr) {
    queue_->push_back([this, i, parameter, write, dtype] { PutOrAdd(i, parameter, write, dtype); });
    return true;
  }
  const c10::ScalarType own = arrival_dtype();
  const bool fits = own == parameter.scalar_type() ||
                    (dtype == gradients::DestinationDtype::kAnyFloat && own == at::kFloat);
  if (arrival_factor_ != 1.0 || !fits) return false;
  const FlatRange& parameter_range = layout_.parameter(i);
  const Lease buffer = AcquireForArrival();
  const at::Tensor arrived =
      buffer.tensor().narrow(0, parameter_range.start, parameter_range.count);
  at::Tensor target = arrived.view(parameter.sizes());
  write(target, received_[static_cast<std::size_t>(i)] ? 1.0F : 0.0F);
  EndArrival(i, arrived);
  return true;
}

namespace {

// Maximum size of a checked gradient. It is still in the nearest cache on arrival, so reading
// biases and norms again costs no pass over memory.
constexpr std::int64_t kMostLookedAt = 1 << 13;

}  // namespace

void FlatGradients::EndArrival(int parameter, const at::Tensor& gradient) {
  received_[static_cast<std::size_t>(parameter)] = true;
  received_in_step_[static_cast<std::size_t>(parameter)] = true;
  const bool looks = gradient.is_cpu() && gradient.numel() <= kMostLookedAt;
  if (looks && !non_finite_) RecordFirstNonFinite(parameter, gradient);
}

void FlatGradients::RecordFirstNonFinite(int parameter, const at::Tensor& gradient) {
  if (std::isfinite(optim::SumOfSquares(gradient))) return;
  const auto found = precision::FindFirstNonFinite(gradient);
  DS_CHECK(found.has_value());
  non_finite_ = {.parameter = parameter,
                 .micro_step = micro_step_,
                 .element = found->index,
                 .value = gradient[found->index].item<double>()};
}

void FlatGradients::ZeroMissingParameters() {
  const Lease buffer = AcquireBuffer();
  for (int i = 0; i < layout_.size(); ++i) {
    if (received_[static_cast<std::size_t>(i)]) continue;
    const FlatRange& parameter_range = layout_.parameter(i);
    buffer.tensor().narrow(0, parameter_range.start, parameter_range.count).zero_();
  }
}

namespace {

// Apply the scaling around the sum, in place.
comm::ReduceOp PrepareReduction(const precision::GradientReduction& reduction,
                                const at::Tensor& full) {
  if (reduction.average) return comm::ReduceOp::kAvg;
  if (reduction.before != 1.0) full.mul_(reduction.before);
  return comm::ReduceOp::kSum;
}
void FinishReduction(const precision::GradientReduction& reduction, const at::Tensor& reduced) {
  if (reduction.after != 1.0) reduced.mul_(reduction.after);
}

// Returns the gradients themselves, or a copy that is booked in `booked`.
at::Tensor CastToWire(const at::Tensor& gradients, c10::ScalarType type, const Context& context,
                      device::LedgerEntry* booked) {
  if (gradients.scalar_type() == type) return gradients;
  const std::int64_t bytes = gradients.numel() * static_cast<std::int64_t>(c10::elementSize(type));
  *booked = device::LedgerEntry(context.ledger, MemoryUse::kCommBuffers, context.tier(), bytes);
  return gradients.to(type);
}

}  // namespace

// The sum is written to the mean directly. If there is a mean already, or it has another dtype, the
// sum is written in place to the sent tensor.
void FlatGradients::BeginReduceIntoShard(const at::Tensor& gradients) {
  const bool first = !own_.defined();
  if (first) {
    own_ = Store(context_, {layout_.shard_numel(), context_.dtypes.gradient, MemoryUse::kGradients,
                            is_used_at_once_ ? StorageTier::kHere : storage_tier_});
  }
  PendingReduction pending{.target = own_.Acquire(first ? Access::kOverwrite : Access::kUpdate),
                           .first = first};
  pending.full = CastToWire(gradients, wire_.dtype, context_, &pending.booked);
  const at::Tensor& full = pending.full;
  const comm::ReduceOp op = PrepareReduction(context_.reduction, full);
  pending.reduced = ViewOwnPart(full);
  const at::Tensor& own = pending.target.tensor();
  if (first && own.scalar_type() == full.scalar_type()) pending.reduced = own;
  comm::Communicator& ranks = *context_.groups.shards;
  if (context_.quantized_gradients && wire_.rounded) {
    const QuantizedCall call{pending.reduced, full, op, wire_.tag};
    pending.rounded.emplace(call, context_, feedbacks_ ? &*feedbacks_ : nullptr);
  } else if (context_.overlap) {
    pending.work = ranks.ReduceScatterAsync(pending.reduced, full, op, wire_.tag);
  } else {
    ranks.ReduceScatter(pending.reduced, full, op, wire_.tag);
  }
  reduction_ = std::make_unique<PendingReduction>(std::move(pending));
}

void FlatGradients::BeginReduceEverywhere() {
  PendingReduction pending{.target = full_.Acquire()};
  pending.full = pending.reduced =
      CastToWire(pending.target.tensor(), wire_.dtype, context_, &pending.booked);
  const at::Tensor& full = pending.full;
  const comm::ReduceOp op = PrepareReduction(context_.reduction, full);
  if (context_.overlap && wire_.row_widths.empty()) {
    pending.work = context_.groups.gradients->AllReduceAsync(full, op, wire_.tag);
  } else if (wire_.row_widths.empty()) {
    context_.groups.gradients->AllReduce(full, op, wire_.tag);
  }
  for (std::size_t i = 0; i < wire_.row_widths.size(); ++i) {
    const FlatRange& parameter_range = layout_.parameter(static_cast<int>(i));
    if (parameter_range.count == 0) continue;
    const at::Tensor table = full.narrow(0, parameter_range.start, parameter_range.count);
    AllReduceRows(context_, table.view({-1, wire_.row_widths[i]}), op, wire_.tag);
  }
  reduction_ = std::make_unique<PendingReduction>(std::move(pending));
}

// Returns whether nothing has been added to the mean of unsharded gradients.
bool FlatGradients::IsReduced() const { return is_mean_ || (own_.defined() && !full_.defined()); }

// Runs once per step, when the shard contains all micro-batches. This saves MiCS traffic between
// its groups.
void FlatGradients::ReduceOverReplicas() {
  if (context_.groups.replicas == nullptr) return;
  Lease own = own_.Acquire();
  device::LedgerEntry booked;
  const at::Tensor travelling = CastToWire(own.tensor(), wire_.dtype, context_, &booked);
  // The factors have been applied around the sum over the shards' group.
  const auto op = context_.reduction.average ? comm::ReduceOp::kAvg : comm::ReduceOp::kSum;
  context_.groups.replicas->AllReduce(travelling, op, wire_.tag);
  if (!travelling.is_same(own.tensor())) own.tensor().copy_(travelling);
  MeasureInFile(own.tensor());
  own = Lease();
  own_.Offload();
}

void FlatGradients::BeginReduction() {
  ZeroMissingParameters();
  if (block_) {
    BeginReduceIntoShard(block_->tensor());
  } else if (context_.sharding.optimizer) {
    BeginReduceIntoShard(full_.Acquire().tensor());
  } else {
    BeginReduceEverywhere();
  }
}

// It is not known yet whether this reduction is the step's last. A pass over freshly written values
// is cheap compared with reading them again from a drive.
void FlatGradients::MeasureInFile(const at::Tensor& mean) {
  if (measure_ && own_.is_in_file()) measured_ = measure_(mean);
}

void FlatGradients::Await() {
  if (!reduction_) return;
  if (reduction_->work) reduction_->work->wait();
  if (reduction_->rounded) reduction_->rounded->Await();
  const at::Tensor& reduced = reduction_->reduced;
  const at::Tensor& target = reduction_->target.tensor();
  FinishReduction(context_.reduction, reduced);
  if (!reduced.is_same(target)) reduction_->first ? target.copy_(reduced) : target.add_(reduced);
  MeasureInFile(target);
  reduction_.reset();
  if (!is_used_at_once_) own_.Offload();
  if (block_) {
    block_->Release();
  } else if (context_.sharding.optimizer) {
    full_ = {};
  } else {
    is_mean_ = true;
  }
}

// The memory of a running call must not be freed before the call has ended. It ends on all ranks
// eventually: successfully, or because one rank has failed.
FlatGradients::~FlatGradients() {
  try {
    Await();
  } catch (const std::exception&) {
    // The code that ended this rank's part in the group has the error.
  }
}

bool FlatGradients::is_alone() const {
  return context_.groups.gradients->size() == 1 && !context_.sharding.optimizer &&
         !context_.is_of_experts;  // an expert's gradient sums several ranks' tokens
}

// If gradients are added to a mean and it is reduced again, the result is the overall mean only if
// the reduction averages. Otherwise unsharded gradients wait for Reduce.
bool FlatGradients::CanReduceBeforeTheEnd() const {
  if (block_ || context_.sharding.optimizer) return true;
  return context_.reduction.average && context_.reduction.after == 1.0 && wire_.row_widths.empty();
}

void FlatGradients::EndMicroBatch(MicroBatchEnd end) {
  ++micro_step_;
  if (end == MicroBatchEnd::kWait || !CanReduceBeforeTheEnd()) {
    if (block_) AcquireBuffer();  // on every rank, even without gradients
    return;
  }
  if (is_alone()) return;
  is_used_at_once_ = end == MicroBatchEnd::kUse;
  BeginReduction();
  if (!context_.overlap) Await();
}

void FlatGradients::KeepOwnGradients() {
  DS_CHECK(!block_ && !context_.sharding.optimizer && !reduction_ && !is_mean_);
  ZeroMissingParameters();
}

void FlatGradients::Reduce() {
  Await();
  if (block_ ? block_->present() : !IsReduced()) {
    if (is_alone()) return ZeroMissingParameters();
    BeginReduction();
    Await();
  }
  if (own_.defined()) ReduceOverReplicas();  // otherwise all ranks have the full mean
}

Lease FlatGradients::shard() {
  Await();
  if (own_.defined()) return own_.Acquire(Access::kRead);
  DS_CHECK_MSG(full_.defined(), "gradients are read before Reduce");
  return full_.Acquire(layout_.shard(context_.groups.shards->rank()));
}

Lease FlatGradients::for_optimizer(const FlatRange& range, Access access) {
  Await();
  if (!context_.sharding.optimizer) return full_.Acquire(range, access);
  DS_CHECK_MSG(own_.defined(), "gradients are read before Reduce");
  if (access != Access::kRead) measured_.reset();
  return own_.Acquire(range, access);
}

std::shared_ptr<checkpoint::TensorSource> FlatGradients::SourceOf(const FlatRange& range) {
  Await();
  if (!context_.sharding.optimizer) return zero::SourceOf(full_, range);
  DS_CHECK_MSG(own_.defined(), "gradients are read before Reduce");
  measured_.reset();  // the caller may write
  return zero::SourceOf(own_, range);
}

void FlatGradients::Prefetch(const FlatRange& range) {
  Await();
  if (own_.is_offloaded()) own_.Prefetch(range);
}

void FlatGradients::Offload(const FlatRange& range) {
  if (own_.is_offloaded() && !is_used_at_once_) own_.Offload(range);
}

void FlatGradients::DropMean() {
  Await();
  measured_.reset();
  full_ = {};
  own_ = {};
}

void FlatGradients::Clear() {
  DropMean();
  is_mean_ = is_used_at_once_ = false;
  if (block_ && block_->present()) block_->Release();
  received_in_step_.assign(received_in_step_.size(), false);
  micro_step_ = 0;
  non_finite_.reset();
}

}  // namespace ds::zero
