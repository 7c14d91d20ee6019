#pragma once

// PlanJobMemory: what each rank of a training job will hold, predicted from the model's numbers and
// the ds_config by the code that ranks themselves follow. Pure, and without LibTorch: `dsrun
// estimate` and the look before a launch ask it as well as the rank that compares it with what it
// has measured.

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
  models::TrainedPart trained = {};
  bool packs_documents = false;  // several in a sample
  models::SequenceKind sequence_kind = models::SequenceKind::kUlysses;
  std::int64_t portion = 0;      // of a sample, in attention; 0: all tokens at once
  std::string portions_in = {};  // TrainJob's
  pipeline::ScheduleKind schedule = pipeline::ScheduleKind::kOneForwardOneBackward;
  int chunks = 1;                          // virtual stages of each stage
  config::DataEfficiency efficiency = {};  // what of samples steps see
  std::optional<int> stage = {};           // of a pipeline; absent: the one that holds the most
  // Rows that come to the planned rank's experts over their even share, where ranks have experts
  // between them, in all layers or by layer that has experts; no more count than can come
  // (models::MostExpertLoad).
  double expert_load = 1.0;
  std::vector<double> layer_loads = {};
  zero::StepSetting setting;
};

// Describes the model's training by these ranks. The error is FindTrainedPart's.
StatusOr<JobShape> DescribeJob(const config::TrainJob& job, models::DecoderSpec model,
                               const zero::StepSetting& setting);

// OK where it is known what such a job's ranks hold. The error names what is not, or the figure
// that is too large for a sum of bytes.
Status CheckMemoryIsKnown(const config::DsConfig& config, const JobShape& job);

// Plans a rank, in the tier where it computes; of tensor and sequence ranks the first, whose part
// is the largest. Where ranks have experts between them, what theirs really get is up to the
// tokens, of which none is dropped: JobShape::expert_load says for what to plan. The micro-batch is
// the config's. Where steps
// see more and more of their samples, the first step's peak is that of the first, the other one
// that of the last. Requires CheckMemoryIsKnown.
zero::StepMemory PlanJobMemory(const config::DsConfig& config, const JobShape& job);

// {"peak","when","parameters","gradients","optimizer_state","master_weights","comm_buffers",
//  "activations","other","peak_activations","first_step","between_steps",
//  "traffic":{"all_gather","reduce_scatter","all_reduce","all_to_all","between_stages"},
//  "windows":{"parameters":{"whole_step","why"},"gradients":...},
//  "away":{"host","files","file_buffers"}}, bytes: the uses at the moment of the peak, the calls of
// one step (zero::StepTraffic) and zero::StepWindows. Without "away" where nothing is.
nlohmann::ordered_json ToJson(const zero::StepMemory& memory);

}  // namespace ds::engine
