#pragma once

// MakeMesh decides how the ranks of a training job are cut.

#include <optional>

#include "runtime/base/status.h"
#include "runtime/topology/mesh.h"

namespace ds::engine {

// The mesh of `wanted` degrees. Without them all ranks lie along `shard`, or, at ZeRO stage 0,
// which cuts nothing, along `replicate`. Refuses degrees that are not built, that the stage
// contradicts, or that make another number of ranks.
StatusOr<topology::Mesh> MakeMesh(const std::optional<topology::Degrees>& wanted, int zero_stage,
                                  int world_size);

}  // namespace ds::engine
