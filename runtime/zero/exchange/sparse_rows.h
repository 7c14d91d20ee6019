#pragma once

// Gradients of embedding tables, of which a batch touches few rows: only rows that some rank has
// touched travel.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "runtime/zero/storage/context.h"

namespace ds::zero {

// groups.gradients->AllReduce of `table` ([rows, width], contiguous), bit for bit, for tables of
// whose rows most are 0 on every rank. Returns the bytes that this rank has given: one for each
// row, which tells the ranks whose rows are touched, and the touched rows' values. Collective.
std::int64_t AllReduceRows(const Context& context, const at::Tensor& table, comm::ReduceOp op,
                           std::string_view tag = {});

}  // namespace ds::zero
