#pragma once

// AllReduceRows: sparse reduction of embedding gradients. A batch touches few rows of a table, so
// only rows that some rank has touched are sent.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "runtime/zero/storage/context.h"

namespace ds::zero {

// Same as groups.gradients->AllReduce of `table` ([rows, width], contiguous), bit for bit, for
// tables in which most rows are 0 on every rank. Returns the number of bytes that this rank has
// sent: one for each row, to find the touched rows, plus their values. Collective.
std::int64_t AllReduceRows(const Context& context, const at::Tensor& table, comm::ReduceOp op,
                           std::string_view tag = {});

}  // namespace ds::zero
