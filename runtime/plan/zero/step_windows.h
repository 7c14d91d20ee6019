#pragma once

// ChooseStepWindows: chooses for how many micro-batches of a step a pipeline stage gathers its
// parameters once, and accumulates gradients before it reduces them once.
//
// Parameters that stay gathered, and gradients that stay unreduced, need as much memory for two
// micro-batches as for the full step. So a window is one micro-batch, or the full step if that fits
// into the config's limits for gathered parameters or gradients in flight. Pure.

#include <cstdint>
#include <string>

#include "runtime/config/ds_config.h"
#include "runtime/config/model_state.h"

namespace ds::zero {

struct StepWindow {
  bool full_step = false;  // else one micro-batch
  std::string why;         // the end of a sentence: "stage3_max_live_parameters (9) is below ..."
};

struct StepWindows {
  StepWindow parameters;  // from the step's first forward pass to its last backward pass
  // From the first backward pass to the last one; until then every rank holds full gradients.
  StepWindow gradients;
};

// SteppedStage: the numbers of a rank's stage in a step, in elements.
struct SteppedStage {
  int stages = 1;  // of the pipeline
  std::int64_t micro_batches = 1;
  std::int64_t parameters = 0;  // of the stage, unsharded
  std::int64_t trained = 0;     // of these
};

// Absent keys that count elements have DeepSpeed's defaults: 1e9 for stage3_max_live_parameters,
// 5e8 for reduce_bucket_size. stage3_max_reuse_distance counts only if written. Without pipeline
// stages every window is a micro-batch, as in DeepSpeed.
StepWindows ChooseStepWindows(const config::ZeroConfig& zero, const config::Sharding& sharding,
                              const SteppedStage& stage);

// Returns "parameters are gathered once a step: WHY; gradients are ...", without a final full stop.
std::string DescribeWindows(const StepWindows& windows);

}  // namespace ds::zero
