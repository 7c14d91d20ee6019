#include "runtime/zero/exchange/quantized_reduction.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nan_to_num.h>

#include "runtime/base/check.h"
#include "runtime/zero/storage/block_quantization.h"

namespace ds::zero {
namespace {

constexpr QuantizedBits kGradientBits = QuantizedBits::k4;

constexpr QuantizedBits kErrorBits = QuantizedBits::k8;

}  // namespace

void LossFeedback::Begin(std::int64_t count, int slots) {
  const std::int64_t bytes = CountQuantizedBytes(count, kErrorBits) * slots;
  if (!errors_.defined()) {
    errors_ = Store(context_, {bytes, at::kByte, device::MemoryUse::kCommBuffers});
  }
  // Zero bytes stand for zero error.
  if (uses_++ % loco_.reset_every == 0) errors_.Acquire().tensor().zero_();
}

void LossFeedback::Quantize(const at::Tensor& values, int slot, const at::Tensor& bytes) {
  const std::int64_t count = values.numel(), size = CountQuantizedBytes(count, kErrorBits);
  const Lease previous = errors_.Acquire({slot * size, size});
  const device::LedgerEntry booked(context_.ledger, device::MemoryUse::kCommBuffers,
                                   context_.tier(),
                                   4 * count * static_cast<std::int64_t>(sizeof(float)));
  at::Tensor error = at::empty({count}, values.options().dtype(at::kFloat));
  Dequantize(previous.tensor(), kErrorBits, error);
  at::Tensor lost = values + error;
  zero::Quantize(lost, kGradientBits, bytes);
  at::Tensor arriving = at::empty_like(error);
  Dequantize(bytes, kGradientBits, arriving);
  lost.sub_(arriving);
  error.mul_(loco_.err_beta).add_(lost, 1.0 - loco_.err_beta);
  // A non-finite gradient is detected after the exchange; it must not persist in the error.
  zero::Quantize(at::nan_to_num(error, 0.0, 0.0, 0.0), kErrorBits, previous.tensor());
}

template <typename ForRank>
QuantizedReduction::Exchange QuantizedReduction::Pack(int ranks, std::int64_t count,
                                                      ForRank for_rank, const Context& context,
                                                      LossFeedback* feedback) {
  const std::int64_t size = CountQuantizedBytes(count, kGradientBits);
  const at::TensorOptions bytes = at::TensorOptions(at::kByte).device(context.device);
  Exchange exchange{.count = count};
  exchange.booked =
      device::LedgerEntry(context.ledger, device::MemoryUse::kCommBuffers, context.tier(),
                          2 * (size * ranks + count * static_cast<std::int64_t>(sizeof(float))));
  exchange.outgoing = at::empty({size * ranks}, bytes);
  exchange.incoming = at::empty_like(exchange.outgoing);
  if (feedback != nullptr) feedback->Begin(count, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const at::Tensor destination = exchange.outgoing.narrow(0, rank * size, size);
    if (feedback != nullptr) {
      feedback->Quantize(for_rank(rank), rank, destination);
    } else {
      Quantize(for_rank(rank), kGradientBits, destination);
    }
  }
  return exchange;
}

// Returns the sum of the values that all ranks of the group sent to this one.
at::Tensor QuantizedReduction::AddUp(const Exchange& exchange) {
  const std::int64_t size = CountQuantizedBytes(exchange.count, kGradientBits);
  const at::Tensor& incoming = exchange.incoming;
  at::Tensor sum = at::empty({exchange.count}, incoming.options().dtype(at::kFloat));
  Dequantize(incoming.narrow(0, 0, size), kGradientBits, sum);
  const at::Tensor next = at::empty_like(sum);
  for (std::int64_t start = size; start < incoming.numel(); start += size) {
    Dequantize(incoming.narrow(0, start, size), kGradientBits, next);
    sum.add_(next);
  }
  return sum;
}

QuantizedReduction::QuantizedReduction(const QuantizedCall& call, const Context& context,
                                       LossFeedbacks* feedbacks)
    : part_(call.part) {
  const auto& [part, full, op, tag] = call;
  DS_CHECK(op == comm::ReduceOp::kSum || op == comm::ReduceOp::kAvg);
  comm::Communicator* far = context.groups.shards;
  const auto& [within, across] = context.secondary;
  const int ranks = far->size();
  const std::int64_t count = part.numel();
  DS_CHECK(full.numel() == count * ranks);
  if (op == comm::ReduceOp::kAvg) divisor_ = ranks;
  LossFeedback* const first = feedbacks == nullptr ? nullptr : &feedbacks->first;
  if (within == nullptr) {
    last_ = Pack(
        ranks, count, [&](int rank) { return call.full.narrow(0, rank * count, count); }, context,
        first);
  } else {
    // The neighbour with index p receives the parts of all ranks with index p, one for each group.
    const std::int64_t groups = across->size(), group_size = within->size();
    const at::Tensor parts = full.view({groups, group_size, count});
    const Exchange near = Pack(
        within->size(), groups * count,
        [&](int destination) { return parts.select(1, destination).reshape({-1}); }, context,
        first);
    within->AllToAll(near.incoming, near.outgoing, {}, {}, tag);
    const at::Tensor group_sum = AddUp(near);
    far = across;
    last_ = Pack(
        far->size(), count, [&](int group) { return group_sum.narrow(0, group * count, count); },
        context, feedbacks == nullptr ? nullptr : &feedbacks->second);
  }
  if (context.overlap) {
    work_ = far->AllToAllAsync(last_.incoming, last_.outgoing, {}, {}, tag);
  } else {
    far->AllToAll(last_.incoming, last_.outgoing, {}, {}, tag);
  }
}

void QuantizedReduction::Await() {
  if (work_) work_->wait();
  at::Tensor sum = AddUp(last_);
  if (divisor_ != 1) sum.div_(divisor_);
  part_.copy_(sum);
  last_ = {};
}

}  // namespace ds::zero
