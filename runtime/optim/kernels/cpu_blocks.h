#pragma once

// A part on the CPU, cut into blocks that stay in the first-level cache while a kernel runs over
// them: gradients are widened and narrow weights published in the same pass over memory.

#include <c10/util/FunctionRef.h>

#include "runtime/optim/kernels/kernels.h"
#include "runtime/optim/kernels/part.h"

namespace ds::optim {

// Calls `update` for every block, from several threads at once. Blocks start at multiples of
// FlatBlock::kMaxCount of the part, whatever the number of threads. Gradient and published copy may
// be undefined.
void ForEachBlock(const Part& part, c10::function_ref<void(const FlatBlock&)> update);

}  // namespace ds::optim
