#pragma once

// UpdateSlice runs an op over a slice: on the CPU block by block (flat_block.h), on a GPU in one
// launch of the CUDA plugin (flat_loop.h). Both compute as flat_ops.h defines, read and write each
// byte once, and publish in the same pass.

#include <c10/core/Device.h>

#include "runtime/optim/kernels/flat_ops.h"
#include "runtime/optim/kernels/optimizer_slice.h"

namespace ds::optim {

// Returns OptimizerSlice::launch for the device: null on the CPU, else the CUDA plugin's function.
// The plugin was loaded when the rank's device was opened. Errors: c10::Error.
FlatUpdate FindFlatUpdate(const at::Device& device);

// Returns pointers to the slice's memory; all views are on its parameter's device.
FlatViews ViewSlice(const OptimizerSlice& slice);

// Updates the slice. Views that the op does not use may be undefined and are not changed.
// `decision`, if not null, is in memory of the slice's device.
void UpdateSlice(FlatOp op, const OptimizerSlice& slice, const UpdateDecision* decision = nullptr);

}  // namespace ds::optim
