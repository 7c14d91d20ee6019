#include "runtime/engine/rank_topology.h"

#include <c10/util/Exception.h>

#include <cstddef>

namespace ds::engine {

int RankTopology::stage() const {
  return mesh.CoordinatesOf(world->rank())[static_cast<std::size_t>(topology::Axis::kPipeline)];
}

std::vector<int> RankTopology::LossRanksOver(topology::AxisSet axes) const {
  topology::Coordinates coordinates = mesh.CoordinatesOf(world->rank());
  coordinates[static_cast<std::size_t>(topology::Axis::kPipeline)] =
      virtual_stages.LocationOf(virtual_stages.count() - 1).stage;
  return mesh.GroupOf(mesh.RankAt(coordinates), axes);
}

void RankTopology::CheckSingleStage(const char* what) const {
  TORCH_CHECK(!channels, what, " of one of ", mesh.degrees().pipeline,
              " stages: TrainStep runs a full step of them");
}

}  // namespace ds::engine
