#include "runtime/zero/quantized_reduction.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nan_to_num.h>

#include "runtime/base/check.h"
#include "runtime/zero/block_quantization.h"

namespace ds::zero {
namespace {

constexpr QuantizedBits kGradientBits = QuantizedBits::k4;

constexpr QuantizedBits kErrorBits = QuantizedBits::k8;

// The sum over the ranks of `group` of what each has for this one. `for_rank(r)` is what this rank
// has for rank r: equal lengths.
template <typename ForRank>
at::Tensor ExchangeAndAdd(comm::Communicator& group, std::int64_t count, ForRank for_rank,
                          const Context& context, LossFeedback* feedback) {
  const std::int64_t size = CountQuantizedBytes(count, kGradientBits);
  const at::TensorOptions where = at::TensorOptions().device(context.device);
  const device::LedgerEntry booked(
      context.ledger, device::MemoryUse::kCommBuffers, context.tier(),
      2 * (size * group.size() + count * static_cast<std::int64_t>(sizeof(float))));
  const at::Tensor outgoing = at::empty({size * group.size()}, where.dtype(at::kByte));
  const at::Tensor incoming = at::empty_like(outgoing);
  if (feedback != nullptr) feedback->Begin(count, group.size());
  for (int rank = 0; rank < group.size(); ++rank) {
    const at::Tensor bytes = outgoing.narrow(0, rank * size, size);
    if (feedback != nullptr) {
      feedback->Quantize(for_rank(rank), rank, bytes);
    } else {
      Quantize(for_rank(rank), kGradientBits, bytes);
    }
  }
  group.AllToAll(incoming, outgoing);
  at::Tensor sum = at::empty({count}, where.dtype(at::kFloat));
  Dequantize(incoming.narrow(0, 0, size), kGradientBits, sum);
  at::Tensor next = at::empty_like(sum);
  for (int rank = 1; rank < group.size(); ++rank) {
    Dequantize(incoming.narrow(0, rank * size, size), kGradientBits, next);
    sum.add_(next);
  }
  return sum;
}

}  // namespace

void LossFeedback::Begin(std::int64_t count, int slots) {
  const std::int64_t bytes = CountQuantizedBytes(count, kErrorBits) * slots;
  if (!errors_.defined()) {
    errors_ = Store(context_, {bytes, at::kByte, device::MemoryUse::kCommBuffers});
  }
  // Zeros are errors of nothing.
  if (uses_++ % loco_.reset_every == 0) errors_.Acquire().tensor().zero_();
}

void LossFeedback::Quantize(const at::Tensor& values, int slot, const at::Tensor& bytes) {
  const std::int64_t count = values.numel(), size = CountQuantizedBytes(count, kErrorBits);
  const Lease kept = errors_.Acquire({slot * size, size});
  at::Tensor error = at::empty({count}, values.options().dtype(at::kFloat));
  Dequantize(kept.tensor(), kErrorBits, error);
  at::Tensor lost = values + error;
  zero::Quantize(lost, kGradientBits, bytes);
  at::Tensor arriving = at::empty_like(error);
  Dequantize(bytes, kGradientBits, arriving);
  lost.sub_(arriving);
  error.mul_(loco_.err_beta).add_(lost, 1.0 - loco_.err_beta);
  // A gradient that is not finite is found behind the exchange; it must not come again.
  zero::Quantize(at::nan_to_num(error, 0.0, 0.0, 0.0), kErrorBits, kept.tensor());
}

void QuantizedReduceScatter(const at::Tensor& part, const at::Tensor& whole, comm::ReduceOp op,
                            const Context& context, LossFeedbacks* feedbacks) {
  DS_CHECK(op == comm::ReduceOp::kSum || op == comm::ReduceOp::kAvg);
  comm::Communicator& shards = *context.groups.shards;
  const auto& [within, across] = context.secondary;
  const int ranks = shards.size();
  const std::int64_t count = part.numel();
  DS_CHECK(whole.numel() == count * ranks);
  LossFeedback* const first = feedbacks == nullptr ? nullptr : &feedbacks->first;
  LossFeedback* const second = feedbacks == nullptr ? nullptr : &feedbacks->second;
  at::Tensor sum;
  if (within == nullptr) {
    sum = ExchangeAndAdd(
        shards, count, [&](int rank) { return whole.narrow(0, rank * count, count); }, context,
        first);
  } else {
    // To the neighbour in place p go the parts of all ranks in place p, one for each group.
    const std::int64_t groups = across->size(), places = within->size();
    const at::Tensor parts = whole.view({groups, places, count});
    const at::Tensor group_sum = ExchangeAndAdd(
        *within, groups * count, [&](int place) { return parts.select(1, place).reshape({-1}); },
        context, first);
    sum = ExchangeAndAdd(
        *across, count, [&](int group) { return group_sum.narrow(0, group * count, count); },
        context, second);
  }
  if (op == comm::ReduceOp::kAvg) sum.div_(ranks);
  part.copy_(sum);
}

}  // namespace ds::zero
