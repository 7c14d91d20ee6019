#pragma once

// PutTogether: a parameter that the ranks along the tensor axis have between them, whole on rank 0.

#include <ATen/core/Tensor.h>

#include "runtime/comm/communicator.h"
#include "runtime/topology/mesh.h"
#include "runtime/zero/parameter_unit.h"

namespace ds::engine {

// The whole tensor on rank 0, without gradient; elsewhere nothing that anybody may read. Requires a
// parameter whose local tensor is there. Collective of the mesh's ranks, all in `world`.
at::Tensor PutTogether(const zero::NamedParameter& parameter, const topology::Mesh& mesh,
                       comm::Communicator& world);

}  // namespace ds::engine
