#pragma once

// What the optimizers' paths for other devices than the CPU share: LibTorch operations over whole
// parts. They run on CPU tensors too, where tests hold them to the kernels.

#include <ATen/core/Tensor.h>

#include "runtime/optim/optimizer.h"

namespace ds::optim {

// The gradient in fp32, scaled; may be the part's own memory, which is the caller's to overwrite.
at::Tensor ScaledGradient(double scale, const Part& part);

// Writes the narrow copy of the parameters, where there is one.
void Publish(const Part& part);

}  // namespace ds::optim
