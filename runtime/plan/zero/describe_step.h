#pragma once

// DescribeStep: derives the input of PlanStepMemory from a config. Pure.

#include "runtime/config/ds_config.h"
#include "runtime/plan/zero/residency_budgets.h"
#include "runtime/plan/zero/step_memory.h"

namespace ds::zero {

struct StepSetting {
  int ranks = 1;          // of the job
  int ranks_of_host = 0;  // on the largest host; 0: all ranks
  bool on_gpu = false;
};

// True if secondary shards (hpZ) are shared by fewer ranks than the `shards` that share the state.
bool HasSecondaryShards(const config::ZeroConfig& zero, int shards);

// Fills in all fields from the config, except the model's units, their activations and its inputs.
StepMemoryInput DescribeStep(const config::DsConfig& config, const StepSetting& setting);

// Chooses the windows of the step. Requires step.units.
StepWindows ChooseWindows(const config::DsConfig& config, const StepMemoryInput& step);

}  // namespace ds::zero
