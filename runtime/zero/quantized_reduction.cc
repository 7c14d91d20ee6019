#include "runtime/zero/quantized_reduction.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "runtime/base/check.h"
#include "runtime/zero/block_quantization.h"

namespace ds::zero {
namespace {

constexpr QuantizedBits kGradientBits = QuantizedBits::k4;

// The sum over the ranks of `group` of what each has for this one. `for_rank(r)` is what this rank
// has for rank r: equal lengths.
template <typename ForRank>
at::Tensor ExchangeAndAdd(comm::Communicator& group, std::int64_t count, ForRank for_rank,
                          const at::TensorOptions& where) {
  const std::int64_t size = CountQuantizedBytes(count, kGradientBits);
  const at::Tensor outgoing = at::empty({size * group.size()}, where.dtype(at::kByte));
  const at::Tensor incoming = at::empty_like(outgoing);
  for (int rank = 0; rank < group.size(); ++rank) {
    Quantize(for_rank(rank), kGradientBits, outgoing.narrow(0, rank * size, size));
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

void QuantizedReduceScatter(const at::Tensor& part, const at::Tensor& whole, comm::ReduceOp op,
                            const ReductionGroups& groups) {
  DS_CHECK(op == comm::ReduceOp::kSum || op == comm::ReduceOp::kAvg);
  const int ranks = groups.all->size();
  const std::int64_t count = part.numel();
  DS_CHECK(whole.numel() == count * ranks);
  const at::TensorOptions where = at::TensorOptions().device(whole.device());
  at::Tensor sum;
  if (groups.near == nullptr) {
    sum = ExchangeAndAdd(
        *groups.all, count, [&](int rank) { return whole.narrow(0, rank * count, count); }, where);
  } else {
    // For the neighbour in place p go the parts of all ranks in place p, one for each in `far`.
    const int near = groups.near->size(), far = groups.far->size();
    const at::Tensor parts = whole.view({far, near, count});
    const at::Tensor near_sum = ExchangeAndAdd(
        *groups.near, far * count, [&](int place) { return parts.select(1, place).reshape({-1}); },
        where);
    sum = ExchangeAndAdd(
        *groups.far, count, [&](int group) { return near_sum.narrow(0, group * count, count); },
        where);
  }
  if (op == comm::ReduceOp::kAvg) sum.div_(ranks);
  part.copy_(sum);
}

}  // namespace ds::zero
