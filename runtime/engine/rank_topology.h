#pragma once

// RankTopology describes this rank's position among the ranks of the job: its coordinates in the
// mesh, its pipeline stage, and the channels to the other stages. BuildEngine fills it; it is
// constant afterwards, except for the messages that pass through the channels.

#include <optional>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/engine/stage_channels.h"
#include "runtime/plan/mesh/mesh.h"
#include "runtime/plan/pipeline/schedule.h"

namespace ds::engine {

struct RankTopology {
  comm::Communicator* world = nullptr;  // borrowed; all ranks of the mesh
  topology::Mesh mesh;
  pipeline::VirtualStages virtual_stages;
  std::optional<StageChannels> channels;  // to the other stages; nullopt with a single stage

  // Returns the pipeline stage of this rank.
  int stage() const;
  // Returns the ranks that have the losses (those with the model's last block) over these axes. The
  // coordinates along the other axes are this rank's.
  std::vector<int> LossRanksOver(topology::AxisSet axes) const;
  // Throws if there are several pipeline stages, which cannot run `what` by themselves.
  void CheckSingleStage(const char* what) const;
};

}  // namespace ds::engine
