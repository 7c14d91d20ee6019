#pragma once

// MakeMesh decides how the ranks of a training job are cut.

#include <optional>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/topology/mesh.h"

namespace ds::engine {

// The mesh of `wanted` degrees. Without them as many ranks as `zero` says lie along `shard`, the
// others along `replicate`: at stage 0, which cuts nothing, all of them. Refuses degrees that are
// not built, that the stage contradicts, or that make another number of ranks.
StatusOr<topology::Mesh> MakeMesh(const std::optional<topology::Degrees>& wanted,
                                  const config::ZeroConfig& zero, int world_size);

}  // namespace ds::engine
