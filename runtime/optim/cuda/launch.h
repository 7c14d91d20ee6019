#pragma once

// Between the part of the plugin that nvcc compiles and the part that includes LibTorch.

#include <cuda_runtime_api.h>

#include "runtime/optim/kernels/flat_ops.h"

namespace ds::optim {

// A grid for the device, whose processors must all be busy while none waits for a second turn.
struct FlatGrid {
  int processors = 0;
  cudaStream_t stream = nullptr;
};

// On the current device. An empty update launches nothing.
cudaError_t LaunchFlatUpdate(const FlatOp& op, const FlatViews& views, const FlatGrid& grid);

}  // namespace ds::optim
