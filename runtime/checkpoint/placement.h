#pragma once

// Placement: what a rank's local tensor is of a parameter that the ranks of a job hold together.
// The gradient norm and checkpoints know no more of how a model is cut.
//
// A tensor that lies as a whole on its ranks is not cut by this; ZeRO cuts it again, flattened,
// among the ranks of its shard group: along kShardAxes for a dense parameter.

#include <vector>

#include "runtime/checkpoint_format/regions.h"
#include "runtime/plan/mesh/degrees.h"

namespace ds::checkpoint {

struct Placement {
  Shape global_shape;  // empty for a scalar
  Boxes boxes = {};    // the local tensor is this part of it; without one, all of it
  // Ranks whose coordinates differ along these alone hold the same elements.
  topology::AxisSet copy_axes = topology::kReplicaAxes;
  // Gradients of ranks whose coordinates differ along these alone add up.
  topology::AxisSet gradient_axes = topology::kGradientAxes;
  // An expert's: it is cut among the ranks that hold the same experts.
  bool expert = false;
  // Stages of a pipeline that hold it, in ascending order, this rank's among them, where there are
  // several, as of a table that is read by the first block and the last. Their gradients add up.
  std::vector<int> stages = {};
};

}  // namespace ds::checkpoint
