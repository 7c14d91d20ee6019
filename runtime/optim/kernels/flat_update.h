#pragma once

// An op over a part, wherever the part lies: on the CPU block by block (flat_block.h), on a GPU in
// one launch of the CUDA plugin's (flat_loop.h). Both compute what flat_ops.h says, read and write
// each byte once, and publish in the same pass.

#include <c10/core/Device.h>

#include "runtime/optim/kernels/flat_ops.h"
#include "runtime/optim/kernels/part.h"

namespace ds::optim {

// Finds Part::launch for the device: null on the CPU, else the CUDA plugin's, which has been
// loaded since the rank's device was opened. Errors: c10::Error.
FlatUpdate FindFlatUpdate(const at::Device& device);

// Finds the part's memory; all views are on its parameter's device.
FlatViews ViewPart(const Part& part);

// Views that the op has no use for may be undefined, and are left as they are. `decision`, where
// there is one, is in memory of the part's device.
void UpdatePart(FlatOp op, const Part& part, const UpdateDecision* decision = nullptr);

}  // namespace ds::optim
