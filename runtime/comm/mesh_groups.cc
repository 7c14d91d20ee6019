#include "runtime/comm/mesh_groups.h"

#include <string>

#include "runtime/base/check.h"

namespace ds::comm {

Communicator& GroupOver(topology::AxisSet axes, std::string_view purpose,
                        const topology::Mesh& mesh, Communicator& world) {
  DS_CHECK(mesh.world_size() == world.size());
  if (mesh.CountOver(axes) == world.size()) return world;
  std::string name;
  for (const topology::Axis axis : mesh.degrees().order) {
    if (!axes.contains(axis)) continue;
    name += std::string(topology::NameOf(axis)) + " " + std::to_string(mesh.degrees().along(axis)) +
            " ";
  }
  return world.Group(name + std::string(purpose), mesh.GroupOf(world.rank(), axes));
}

}  // namespace ds::comm
