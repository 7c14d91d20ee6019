#include "runtime/zero/exchange/sparse_rows.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/nonzero.h>

namespace ds::zero {

std::int64_t AllReduceRows(const Context& context, const at::Tensor& table, comm::ReduceOp op,
                           std::string_view tag) {
  // NaN is not 0, so it is sent.
  const at::Tensor touched = table.ne(0).any(/*dim=*/1).to(at::kByte);
  context.groups.gradients->AllReduce(touched, comm::ReduceOp::kMax, tag);
  const at::Tensor rows = at::nonzero(touched).flatten();
  const auto marks = static_cast<std::int64_t>(touched.nbytes());
  if (rows.numel() == 0) return marks;
  const device::LedgerEntry booked(context.ledger, device::MemoryUse::kCommBuffers, context.tier(),
                                   rows.numel() * table.size(1) * table.element_size());
  const at::Tensor values = at::index_select(table, 0, rows);
  context.groups.gradients->AllReduce(values, op, tag);
  table.index_copy_(0, rows, values);
  return marks + static_cast<std::int64_t>(values.nbytes());
}

}  // namespace ds::zero
