#pragma once

// What lets weights and optimizer state be kept in bf16 or fp16: every element is widened, updated
// in fp32 and rounded to nearest once, as DeepSpeed's Adam kernels do. 16-bit weights are updated
// by gradients that were rounded to their dtype after gradient_scale, too, as in DeepSpeed.

#include "runtime/optim/optimizer.h"

namespace ds::optim {

// optimizer.Apply, where `part` may hold parameter and state in any floating dtype. What is not
// fp32 is updated piece by piece, so the fp32 copies stay in the cache (on a GPU: small); that
// requires an optimizer that computes each element from that element's values alone.
void ApplyInFp32(Optimizer& optimizer, const Update& update, const Part& part);

}  // namespace ds::optim
