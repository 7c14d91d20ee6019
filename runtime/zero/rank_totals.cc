#include "runtime/zero/rank_totals.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <string>

namespace ds::zero {

std::vector<std::vector<double>> GatherNumbers(const Context& context,
                                               const std::vector<double>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  const int world_size = context.world->size();
  // As 64-bit integers: any backend moves those, and none of them touches the bits.
  at::Tensor mine = at::empty({count}, at::kLong);
  std::memcpy(mine.data_ptr<std::int64_t>(), values.data(), values.size() * sizeof(double));
  at::Tensor all =
      at::empty({world_size * count}, at::TensorOptions(at::kLong).device(context.device));
  context.world->AllGather(all, mine.to(context.device));
  all = all.cpu();
  std::vector<std::vector<double>> table(static_cast<std::size_t>(world_size), values);
  for (int rank = 0; rank < world_size; ++rank) {
    std::memcpy(table[static_cast<std::size_t>(rank)].data(),
                all.const_data_ptr<std::int64_t>() + rank * count, values.size() * sizeof(double));
  }
  return table;
}

Status AgreeOnStatus(const Context& context, const Status& mine) {
  const auto table = GatherNumbers(context, {mine.ok() ? 0.0 : 1.0});
  if (!mine.ok()) return mine;
  for (std::size_t rank = 0; rank < table.size(); ++rank) {
    if (table[rank][0] != 0.0) {
      return FailedPreconditionError("rank " + std::to_string(rank) +
                                     " failed; its message says why");
    }
  }
  return OkStatus();
}

}  // namespace ds::zero
