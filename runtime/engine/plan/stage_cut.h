#pragma once

// CutStages: which blocks of a decoder each stage of a pipeline has. Pure; safe from any thread.

#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/models/spec/decoder_spec.h"

namespace ds::engine {

// The cut of the model's blocks that config.pipeline asks for, of as many parts as there are
// stages, each of one block or more. Refuses what pipeline::CutBlocks does.
StatusOr<std::vector<int>> CutStages(const models::DecoderSpec& model,
                                     const config::DsConfig& config);

}  // namespace ds::engine
