#pragma once

// An op over a part, wherever the part lies: on the CPU block by block (kernels.h), on a GPU in one
// launch of the CUDA plugin's. Both compute what flat_ops.h says, read and write each byte once,
// and publish in the same pass.

#include <utility>

#include "runtime/optim/kernels/cpu_blocks.h"
#include "runtime/optim/kernels/flat_ops.h"
#include "runtime/optim/kernels/part.h"

namespace ds::optim {

// The CUDA plugin's; it has been loaded since the rank's device was opened. Errors: c10::Error.
FlatUpdate CudaFlatUpdate();

// The part's memory; all views are on its parameter's device.
FlatViews ViewsOf(const Part& part);

// With `launch` on the device it is for, without it on the CPU in fp32. Views that the op has no
// use for may be undefined.
template <typename Op>
void UpdatePart(Op op, const Part& part, FlatUpdate launch) {
  const Part used{.parameter = part.parameter,
                  .gradient = Op::kStreams.reads_gradient ? part.gradient : at::Tensor(),
                  .state = part.state,
                  .published = Op::kStreams.writes_parameter ? part.published : at::Tensor()};
  if (launch == nullptr) {
    return ForEachBlock(used, [&](const FlatBlock& block) { UpdateBlock(op, block); });
  }
  FlatViews views = ViewsOf(used);
  if constexpr (requires { op.c.gradient_scale; }) {
    // Narrow parameters: the gradient is scaled where it is rounded.
    if (views.parameter.type != FlatType::kFloat) {
      views.narrow_scale = std::exchange(op.c.gradient_scale, 1.0F);
    }
  }
  launch(op, views);
}

}  // namespace ds::optim
