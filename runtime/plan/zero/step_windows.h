#pragma once

// ChooseStepWindows: for how many micro-batches of a step a stage of a pipeline gathers its
// parameters once, and adds gradients up before it reduces them once.
//
// Parameters that stay gathered, and gradients that wait unreduced, take as much memory for two
// micro-batches as for all of a step: so a window is one micro-batch, or the whole step where that
// fits into what the config lets be gathered, or under way, at once. Pure.

#include <cstdint>
#include <string>

#include "runtime/config/ds_config.h"
#include "runtime/config/model_state.h"

namespace ds::zero {

struct StepWindow {
  bool whole_step = false;  // else a micro-batch
  std::string why;          // the rest of a sentence: "stage3_max_live_parameters (9) is below ..."
};

struct StepWindows {
  StepWindow parameters;  // from the first forward pass of the step to its last backward pass
  // From the first backward pass to the last one: until then they lie whole on every rank.
  StepWindow gradients;
};

// SteppedStage is what a rank goes through in a step, in elements.
struct SteppedStage {
  int stages = 1;  // of the pipeline
  std::int64_t micro_batches = 1;
  std::int64_t parameters = 0;  // of the stage, whole
  std::int64_t trained = 0;     // of those
};

// Keys that count elements and are silent have DeepSpeed's defaults: 1e9 for
// stage3_max_live_parameters, 5e8 for reduce_bucket_size; stage3_max_reuse_distance counts where it
// is written. Without stages every window is a micro-batch, as in DeepSpeed.
StepWindows ChooseStepWindows(const config::ZeroConfig& zero, const config::Sharding& sharding,
                              const SteppedStage& stage);

// "parameters are gathered once a step: WHY; gradients are ...", without a full stop at the end.
std::string DescribeWindows(const StepWindows& windows);

}  // namespace ds::zero
