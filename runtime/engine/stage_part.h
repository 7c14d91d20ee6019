#pragma once

// FindStagePart returns the part of a decoder that a rank builds.

#include <optional>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/models/block.h"
#include "runtime/plan/memory/stage_cut.h"
#include "runtime/plan/mesh/mesh.h"
#include "runtime/plan/model/decoder_spec.h"

namespace ds::engine {

// Returns the blocks of this rank's stage, for models::BuildModel; nullopt if the mesh has one
// stage. Fails if CutStages does.
StatusOr<std::optional<models::StagePart>> FindStagePart(const topology::Mesh& mesh, int rank,
                                                         const models::DecoderSpec& model,
                                                         const config::DsConfig& config,
                                                         const StageOrder& order = {});

}  // namespace ds::engine
