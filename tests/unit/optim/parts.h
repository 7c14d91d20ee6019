#pragma once

// Parts of random numbers for the tests of optimizers.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/optim/optimizer.h"

namespace ds::optim {

// State as an optimizer has it in the middle of a run: small, and nowhere negative.
Part RandomPart(const Optimizer& optimizer, std::int64_t count);
Part CopyOf(const Part& part);

// The largest difference of two elements.
double Distance(const at::Tensor& a, const at::Tensor& b);
// Whether parameter and state of both hold the same bits.
bool SameBits(const Part& a, const Part& b);

}  // namespace ds::optim
