#pragma once

// What lets weights and optimizer state be kept in bf16 or fp16: every element is widened, updated
// in fp32 and rounded to nearest once, as DeepSpeed's Adam kernels do. 16-bit weights are updated
// by gradients that were rounded to their dtype after gradient_scale, too, as in DeepSpeed.

#include "runtime/optim/optimizer.h"

namespace ds::optim {

// optimizer.Apply, where `part` may hold parameter and state in any floating dtype; that requires
// an optimizer that computes each element from that element's values alone. On the CPU what is not
// fp32 is updated piece by piece, so that the fp32 copies stay in the cache; a launch on a GPU
// (flat_loop.h) widens in registers.
void ApplyInFp32(Optimizer& optimizer, const Update& update, const Part& part);

}  // namespace ds::optim
