#pragma once

// CutStages: which blocks of a decoder each stage of a pipeline has, and StageOrder, when it
// computes them. Pure; safe from any thread.

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/models/spec/decoder_spec.h"
#include "runtime/pipeline/schedule.h"

namespace ds::engine {

struct StageOrder {
  pipeline::ScheduleKind kind = pipeline::ScheduleKind::kOneForwardOneBackward;
  int chunks = 1;  // virtual stages of each stage
};

// Returns that of a schedule's name and a number of virtual stages; 0: as many as it takes. Refuses
// what pipeline::Schedule does, of the config's stages and micro-batches.
StatusOr<StageOrder> ParseStageOrder(std::string_view schedule, std::int64_t virtual_stages,
                                     const config::DsConfig& config);

// The cut of the model's blocks that config.pipeline asks for, of as many parts as its stages have
// chunks (virtual stages), each of one block or more. Refuses what pipeline::CutBlocks does.
StatusOr<std::vector<int>> CutStages(const models::DecoderSpec& model,
                                     const config::DsConfig& config, int chunks = 1);

}  // namespace ds::engine
