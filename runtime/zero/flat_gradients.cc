#include "runtime/zero/flat_gradients.h"

#include <cmath>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/optim/kernels/gradient_norm.h"
#include "runtime/precision/finite_check.h"
#include "runtime/zero/quantized_reduction.h"
#include "runtime/zero/sparse_rows.h"

namespace ds::zero {

using device::MemoryUse;

FlatGradients::FlatGradients(const Context& context, BufferPool& pool, const FlatLayout& layout,
                             GradientTravel travel)
    : context_(context),
      layout_(layout),
      travel_(std::move(travel)),
      received_(static_cast<std::size_t>(layout.size()), false),
      received_in_step_(received_) {
  if (context.sharding.gradients) {
    block_ =
        std::make_unique<PooledTensor>(pool, layout.padded_numel(), travel_.dtype, context.device);
  }
}

Lease FlatGradients::AcquireBuffer() {
  const bool is_there = block_ ? block_->present() : whole_.defined();
  if (block_) {
    block_->Acquire();
  } else if (!is_there) {
    whole_ =
        Store(context_, {layout_.padded_numel(), context_.dtypes.gradient, MemoryUse::kGradients});
  }
  Lease buffer = block_ ? Lease(block_->tensor()) : whole_.Acquire();
  if (is_there) return buffer;
  received_.assign(received_.size(), false);
  for (const FlatRange& gap : layout_.gaps()) {
    buffer.tensor().narrow(0, gap.start, gap.count).zero_();
  }
  return buffer;
}

at::Tensor FlatGradients::ViewOwnPart(const at::Tensor& whole) const {
  const FlatRange own = layout_.shard(context_.groups.shards->rank());
  return whole.narrow(0, own.start, own.count);
}

void FlatGradients::Add(int i, const at::Tensor& gradient) {
  const FlatRange& place = layout_.parameter(i);
  const Lease buffer = AcquireBuffer();
  const at::Tensor arrived = buffer.tensor().narrow(0, place.start, place.count);
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

bool FlatGradients::Put(int i, const at::Tensor& parameter, const gradients::WriteGradient& write) {
  const c10::ScalarType dtype = block_ ? travel_.dtype : context_.dtypes.gradient;
  if (arrival_factor_ != 1.0 || dtype != parameter.scalar_type()) return false;
  const FlatRange& place = layout_.parameter(i);
  const Lease buffer = AcquireBuffer();
  const at::Tensor arrived = buffer.tensor().narrow(0, place.start, place.count);
  at::Tensor target = arrived.view(parameter.sizes());
  write(target, received_[static_cast<std::size_t>(i)] ? 1.0F : 0.0F);
  EndArrival(i, arrived);
  return true;
}

void FlatGradients::EndArrival(int parameter, const at::Tensor& gradient) {
  received_[static_cast<std::size_t>(parameter)] = true;
  received_in_step_[static_cast<std::size_t>(parameter)] = true;
  if (!non_finite_ && gradient.is_cpu()) RecordFirstNonFinite(parameter, gradient);
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
    const FlatRange& place = layout_.parameter(i);
    buffer.tensor().narrow(0, place.start, place.count).zero_();
  }
}

comm::ReduceOp FlatGradients::PrepareReduction(const at::Tensor& whole) const {
  const precision::GradientReduction& reduction = context_.reduction;
  if (reduction.average) return comm::ReduceOp::kAvg;
  if (reduction.before != 1.0) whole.mul_(reduction.before);
  return comm::ReduceOp::kSum;
}

void FlatGradients::FinishReduction(const at::Tensor& reduced) const {
  if (context_.reduction.after != 1.0) reduced.mul_(context_.reduction.after);
}

void FlatGradients::ReduceScatter(const at::Tensor& part, const at::Tensor& whole) const {
  const comm::RankGroups& groups = context_.groups;
  const comm::ReduceOp op = PrepareReduction(whole);
  if (context_.quantized_gradients) {
    QuantizedReduceScatter(part, whole, op, {groups.shards, groups.near, groups.far});
  } else {
    groups.shards->ReduceScatter(part, whole, op, travel_.tag);
  }
  FinishReduction(part);
}

// Reduced in place in the travelling buffer, then moved or added to the shard.
void FlatGradients::ReduceIntoShard(const at::Tensor& whole) {
  const at::Tensor part = ViewOwnPart(whole);
  const bool first = !own_.defined();
  if (first) {
    own_ =
        Store(context_, {layout_.shard_numel(), context_.dtypes.gradient, MemoryUse::kGradients});
  }
  const Lease own = own_.Acquire();
  if (first && own.tensor().scalar_type() == whole.scalar_type()) {
    ReduceScatter(own.tensor(), whole);
    return;
  }
  ReduceScatter(part, whole);
  if (first) {
    own.tensor().copy_(part);
  } else {
    own.tensor().add_(part);
  }
}

void FlatGradients::ReduceEverywhere(const at::Tensor& whole) {
  const comm::ReduceOp op = PrepareReduction(whole);
  if (travel_.row_widths.empty()) context_.groups.gradients->AllReduce(whole, op, travel_.tag);
  for (std::size_t i = 0; i < travel_.row_widths.size(); ++i) {
    const FlatRange& place = layout_.parameter(static_cast<int>(i));
    if (place.count == 0) continue;
    const at::Tensor table = whole.narrow(0, place.start, place.count);
    AllReduceRows(context_, table.view({-1, travel_.row_widths[i]}), op);
  }
  FinishReduction(whole);
}

// Once in a step, when the shard has all micro-batches: what makes MiCS frugal between its groups.
void FlatGradients::ReduceOverReplicas() {
  if (context_.groups.replicas == nullptr) return;
  const Lease own = own_.Acquire();
  const at::Tensor travelling = own.tensor().to(travel_.dtype);  // itself, if it is of that dtype
  // The factors have been applied before and after the sum over the shards' group.
  const auto op = context_.reduction.average ? comm::ReduceOp::kAvg : comm::ReduceOp::kSum;
  context_.groups.replicas->AllReduce(travelling, op, travel_.tag);
  if (!travelling.is_same(own.tensor())) own.tensor().copy_(travelling);
}

void FlatGradients::ReduceBlock() {
  ZeroMissingParameters();
  ReduceIntoShard(block_->tensor());
  block_->Release();
}

void FlatGradients::EndMicroBatch(bool hold) {
  ++micro_step_;
  if (!block_) return;
  if (hold) {
    AcquireBuffer();  // on every rank, whatever gradients it has had
  } else {
    ReduceBlock();
  }
}

void FlatGradients::KeepOwnGradients() {
  DS_CHECK(!block_ && !context_.sharding.optimizer);
  ZeroMissingParameters();
}

void FlatGradients::Reduce() {
  if (block_) {
    if (block_->present()) ReduceBlock();  // held
    return ReduceOverReplicas();
  }
  ZeroMissingParameters();
  if (context_.groups.gradients->size() == 1) return;
  if (context_.sharding.optimizer) {
    ReduceIntoShard(whole_.Acquire().tensor().to(travel_.dtype));
    whole_ = {};
    return ReduceOverReplicas();
  }
  const Lease whole = whole_.Acquire();
  const at::Tensor travelling = whole.tensor().to(travel_.dtype);  // itself, if it is of that dtype
  ReduceEverywhere(travelling);
  if (!travelling.is_same(whole.tensor())) whole.tensor().copy_(travelling);
}

Lease FlatGradients::shard() {
  if (own_.defined()) return own_.Acquire();
  DS_CHECK_MSG(whole_.defined(), "gradients are read before Reduce");
  return whole_.Acquire(layout_.shard(context_.groups.shards->rank()));
}

Lease FlatGradients::for_optimizer() {
  return context_.sharding.optimizer ? shard() : whole_.Acquire();
}

void FlatGradients::Clear() {
  if (block_ && block_->present()) block_->Release();
  whole_ = {};
  own_ = {};
  received_in_step_.assign(received_in_step_.size(), false);
  micro_step_ = 0;
  non_finite_.reset();
}

}  // namespace ds::zero
