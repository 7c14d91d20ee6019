#pragma once

// PartitionStages: assigns the blocks of a decoder to the stages of a pipeline. StageOrder: the
// order in which stages compute. Pure. Thread-safe.

#include <cstdint>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/config/recompute_choice.h"
#include "runtime/config/train_job.h"
#include "runtime/plan/memory/trainable_parameters.h"
#include "runtime/plan/model/decoder_spec.h"
#include "runtime/plan/pipeline/schedule.h"

namespace ds::engine {

struct StageOrder {
  pipeline::ScheduleKind kind = pipeline::ScheduleKind::kOneForwardOneBackward;
  int chunks = 1;  // virtual stages per stage
  // A sample's work and activations depend on these.
  std::int64_t seq_len = 1;
  config::RecomputeChoice recompute = {};
  models::TrainableParameters trained = {};  // frozen parameters have no state besides their values
};

// Returns the job's order. The number of virtual stages is the job's or, if not set, the schedule's
// default. Fails like pipeline::PipelineSchedule, for the config's stages and micro-batches, and
// like FindTrainableParameters (trained_rules.h).
StatusOr<StageOrder> ParseStageOrder(const config::TrainJob& job, const config::DsConfig& config);

// Returns by block the multiplications in a forward pass of a sample of `seq_len` tokens: products
// and attention, and for experts only those to which its tokens are routed.
StatusOr<std::vector<double>> CountWork(const models::DecoderSpec& model, std::int64_t seq_len);

// Returns the split of the model's blocks that config.pipeline selects, with one part per virtual
// stage and at least one block per part. "memory" minimizes the memory of the fullest virtual
// stage: the state of its parameters (ZeRO's shard), and the activations of the micro-batches that
// the schedule holds there. Fails like pipeline::PartitionBlocks. Refuses "memory" if the model's
// memory is not known, or if nothing is trained.
StatusOr<std::vector<int>> PartitionStages(const models::DecoderSpec& model,
                                           const config::DsConfig& config,
                                           const StageOrder& order = {});

}  // namespace ds::engine
