#pragma once

// LaunchFlatUpdate connects the part of the plugin that nvcc compiles to the part that includes
// LibTorch.

#include <cuda_runtime_api.h>

#include "runtime/optim/kernels/flat_ops.h"

namespace ds::optim {

// The device's number of processors: the grid keeps all processors busy, and no block waits for a
// second wave.
struct FlatGrid {
  int processors = 0;
  cudaStream_t stream = nullptr;
};

// Launches on the current device. An empty update launches nothing.
cudaError_t LaunchFlatUpdate(const FlatOp& op, const FlatViews& views, const FlatGrid& grid);

}  // namespace ds::optim
