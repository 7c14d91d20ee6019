#pragma once

// CutStages: which blocks of a decoder each stage of a pipeline has, and StageOrder, when it
// computes them. Pure; safe from any thread.

#include <cstdint>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/config/recompute_choice.h"
#include "runtime/config/train_job.h"
#include "runtime/plan/memory/trained_part.h"
#include "runtime/plan/model/decoder_spec.h"
#include "runtime/plan/pipeline/schedule.h"

namespace ds::engine {

struct StageOrder {
  pipeline::ScheduleKind kind = pipeline::ScheduleKind::kOneForwardOneBackward;
  int chunks = 1;  // virtual stages of each stage
  // A sample's work and activations depend on these.
  std::int64_t seq_len = 1;
  config::RecomputeChoice recompute = {};
  models::TrainedPart trained = {};  // what is frozen has no state beside its values
};

// Returns the job's: as many virtual stages as it says or, without a word, as its schedule takes.
// Refuses what pipeline::Schedule does, of the config's stages and micro-batches, and what
// FindTrainedPart does (trained_rules.h).
StatusOr<StageOrder> ParseStageOrder(const config::TrainJob& job, const config::DsConfig& config);

// Counts by block the multiplications that a sample of so many tokens takes in a forward pass: its
// products and attention, and of experts those that its tokens go to.
StatusOr<std::vector<double>> CountWork(const models::DecoderSpec& model, std::int64_t seq_len);

// The cut of the model's blocks that config.pipeline asks for, of as many parts as its stages have
// chunks (virtual stages), each of one block or more. "memory" makes the fullest virtual stage as
// empty as can be: a stage has the state of its parameters (ZeRO's shard of it) and the activations
// of as many micro-batches as the schedule holds there. Refuses what pipeline::CutBlocks does, and
// "memory" for a model of which it is not known, or of which nothing is trained.
StatusOr<std::vector<int>> CutStages(const models::DecoderSpec& model,
                                     const config::DsConfig& config, const StageOrder& order = {});

}  // namespace ds::engine
