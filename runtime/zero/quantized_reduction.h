#pragma once

// QuantizedReduceScatter: the sum or mean over ranks, of which each gets its part, with gradients
// that travel in 4 bits (ZeRO++'s qgZ, arXiv 2306.10209). A value is quantised once, added up in
// fp32 where it arrives, and, with two levels, quantised and added up a second time.

#include <ATen/core/Tensor.h>

#include "runtime/comm/communicator.h"

namespace ds::zero {

// The ranks among which `whole` is reduced. Two levels: first among neighbours (`near`, whose ranks
// follow one another in `all`), then among those of equal place there (`far`). Both null: one.
struct ReductionGroups {
  comm::Communicator* all = nullptr;
  comm::Communicator* near = nullptr;
  comm::Communicator* far = nullptr;
};

// Overwrites `part` with this rank's part of `whole`, which has one for each rank, in rank order,
// of a multiple of 8 elements. Collective. Needs about as many bytes as 1/8 of `whole` twice.
void QuantizedReduceScatter(const at::Tensor& part, const at::Tensor& whole, comm::ReduceOp op,
                            const ReductionGroups& groups);

}  // namespace ds::zero
