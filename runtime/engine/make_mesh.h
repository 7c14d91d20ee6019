#pragma once

// MakeMesh decides how the ranks of a training job are cut.

#include <optional>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/topology/mesh.h"

namespace ds::engine {

// The degrees that a config asks for, built or not: pipeline, sequence, tensor and expert as it
// says; of the ranks that are left as many as ZeRO cuts the state among lie along `shard`, the
// others along `replicate`: at stage 0, which cuts nothing, all of them.
topology::Degrees DegreesOf(const config::DsConfig& config, int world_size);

// The mesh of `wanted` degrees, or of the config's. Refuses degrees that are not built, that the
// config contradicts, or that make another number of ranks.
StatusOr<topology::Mesh> MakeMesh(const std::optional<topology::Degrees>& wanted,
                                  const config::DsConfig& config, int world_size);

}  // namespace ds::engine
