#include "runtime/engine/put_together.h"

#include <ATen/ops/zeros.h>

#include "runtime/comm/mesh_groups.h"

namespace ds::engine {

at::Tensor PutTogether(const zero::NamedParameter& parameter, const topology::Mesh& mesh,
                       comm::Communicator& world) {
  const at::Tensor local = parameter.tensor.detach();
  const checkpoint::Placement& placement = parameter.placement;
  const topology::AxisSet axes{topology::Axis::kTensor};
  if (placement.boxes.empty() || mesh.GroupOf(world.rank(), axes).front() != 0) return local;
  const at::Tensor whole = at::zeros(placement.global_shape, local.options());
  const at::Tensor flat = whole.view({-1}), own = local.reshape({-1});
  for (const checkpoint::Stretch& stretch :
       checkpoint::FindStretches(placement.global_shape, {placement.boxes, 0, local.numel()})) {
    flat.narrow(0, stretch.global, stretch.count)
        .copy_(own.narrow(0, stretch.local, stretch.count));
  }
  // Others have zeros where one rank has its part.
  comm::GroupOver(axes, "tensor parallelism", mesh, world).Reduce(whole, 0, comm::ReduceOp::kSum);
  return whole;
}

}  // namespace ds::engine
