#pragma once

// Parts of random numbers for the tests of optimizers.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/optim/optimizer.h"

namespace ds::optim {

// One parameter without padding, with state as an optimizer has it in the middle of a run: small,
// and nowhere negative.
OptimizerSlice RandomPart(const Optimizer& optimizer, std::int64_t count);
// Without the published copy.
OptimizerSlice CopyOf(const OptimizerSlice& slice);

// Begin and Apply of a world of one rank.
void Step(Optimizer& optimizer, const Update& update, const std::vector<OptimizerSlice>& slices);

// The largest difference of two elements.
double Distance(const at::Tensor& a, const at::Tensor& b);
// Tells whether parameter and state of both hold the same bits.
bool SameBits(const OptimizerSlice& a, const OptimizerSlice& b);

}  // namespace ds::optim
