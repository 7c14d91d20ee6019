#pragma once

// GroupOver: returns the communicators of a mesh's groups of ranks.

#include <string_view>

#include "runtime/comm/communicator.h"
#include "runtime/plan/mesh/mesh.h"

namespace ds::comm {

// Returns this rank's group over `axes` for the use named `purpose`. Each pair of axes and purpose
// has one group, which is created on first use (Communicator::Group). The group of all ranks is
// `world` itself. Requires that `world` connects the mesh's ranks.
Communicator& GroupOver(topology::AxisSet axes, std::string_view purpose,
                        const topology::Mesh& mesh, Communicator& world);

}  // namespace ds::comm
