#pragma once

// PlanJobMemory: predicts the memory of each rank of a training job from the model's numbers and
// the ds_config, with the code that ranks themselves follow. Pure, but for the kind of this
// processor (IsMultipliedInFp32), and without LibTorch. Used by `dsrun estimate`, by the check
// before a launch, and by the rank that compares it with its measurement.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/curriculum.h"
#include "runtime/config/ds_config.h"
#include "runtime/config/recompute_choice.h"
#include "runtime/config/train_job.h"
#include "runtime/plan/memory/decoder_memory.h"
#include "runtime/plan/model/model_ranks.h"
#include "runtime/plan/pipeline/schedule.h"
#include "runtime/plan/zero/describe_step.h"
#include "runtime/plan/zero/step_memory.h"

namespace ds::engine {

struct JobShape {
  models::DecoderSpec model;
  std::int64_t seq_len = 1;
  config::RecomputeChoice recompute = {};
  std::int64_t mlp_tiles = 1;
  models::TrainableParameters trained = {};
  bool packs_documents = false;  // several per sample
  models::SequenceKind sequence_kind = models::SequenceKind::kUlysses;
  std::int64_t sp_chunk = 0;    // tokens per FPDT chunk in attention; 0: no chunks
  std::string sp_offload = {};  // TrainJob::sp_offload
  pipeline::ScheduleKind schedule = pipeline::ScheduleKind::kOneForwardOneBackward;
  int chunks = 1;                          // virtual stages per stage
  config::DataEfficiency efficiency = {};  // the tokens of samples that steps see
  std::optional<int> stage = {};           // of a pipeline; absent: the one that holds the most
  // Rows that the planned rank's experts receive relative to their even share, under expert
  // parallelism: for all layers, or per layer with experts. Limited to the possible maximum
  // (models::MostExpertLoad).
  double expert_load = 1.0;
  std::vector<double> layer_loads = {};
  zero::StepSetting setting;
};

// Describes the model's training by these ranks. Fails like FindTrainableParameters.
StatusOr<JobShape> DescribeJob(const config::TrainJob& job, models::DecoderSpec model,
                               const zero::StepSetting& setting);

// OK if the memory of such a job's ranks can be predicted. The error names the unsupported feature,
// or the figure that overflows a sum of bytes.
Status CheckMemoryIsKnown(const config::DsConfig& config, const JobShape& job);

// Plans one rank, in the tier where it computes. Of tensor and sequence ranks this is the first
// one, which has the largest part. Under expert parallelism the tokens decide the load, and none is
// dropped: JobShape::expert_load sets the planned load. The micro-batch is the config's. If steps
// see growing parts of their samples, the first step's peak is planned with the first part and the
// other peak with the largest. Requires CheckMemoryIsKnown.
zero::StepMemory PlanJobMemory(const config::DsConfig& config, const JobShape& job);

// {"peak","when","parameters","gradients","optimizer_state","master_weights","comm_buffers",
//  "activations","other","peak_activations","first_step","between_steps",
//  "traffic":{"all_gather","reduce_scatter","all_reduce","all_to_all","between_stages"},
//  "windows":{"parameters":{"full_step","why"},"gradients":...},
//  "away":{"host","files","file_buffers"}}, in bytes. The uses are those at the peak.
// "traffic" is zero::StepTraffic of one step; "windows" is zero::StepWindows. "away" is omitted if
// nothing is stored elsewhere.
nlohmann::ordered_json ToJson(const zero::StepMemory& memory);

}  // namespace ds::engine
