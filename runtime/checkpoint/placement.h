#pragma once

// Placement locates a rank's local tensor within a global parameter that is distributed over the
// ranks of a job. The gradient norm and checkpoints need no other knowledge of how a model is
// sharded.
//
// A replicated tensor has no boxes. ZeRO shards local tensors further: it flattens them and splits
// them among the ranks of the shard group, along kShardAxes for a dense parameter.

#include <vector>

#include "runtime/checkpoint_format/regions.h"
#include "runtime/plan/mesh/degrees.h"

namespace ds::checkpoint {

struct Placement {
  Shape global_shape;  // empty for a scalar
  Boxes boxes = {};    // the local tensor is these parts of it; all of it if empty
  // Ranks with coordinates that differ only along these axes hold the same elements.
  topology::AxisSet copy_axes = topology::kReplicaAxes;
  // Gradients of ranks with coordinates that differ only along these axes must be summed.
  topology::AxisSet gradient_axes = topology::kGradientAxes;
  // True for a parameter of an expert. ZeRO splits it among the ranks that hold the same experts.
  bool expert = false;
  // Pipeline stages that hold the parameter, ascending and with this rank's stage, if there are
  // several. An example is an embedding table that the first and the last block read. Their
  // gradients are summed.
  std::vector<int> stages = {};
};

}  // namespace ds::checkpoint
