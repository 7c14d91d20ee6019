#pragma once

// GroupOver: the communicators of a mesh's groups of ranks.

#include <string_view>

#include "runtime/comm/communicator.h"
#include "runtime/plan/mesh/mesh.h"

namespace ds::comm {

// This rank's group over `axes`, for what goes under the name `purpose`: one for each pair of both,
// made when it is first asked for (Communicator::Group). A group of all ranks is `world` itself.
// Requires: `world` connects the mesh's ranks.
Communicator& GroupOver(topology::AxisSet axes, std::string_view purpose,
                        const topology::Mesh& mesh, Communicator& world);

}  // namespace ds::comm
