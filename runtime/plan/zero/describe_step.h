#pragma once

// DescribeStep: what a config says about the memory of a step, for PlanStepMemory. Pure.

#include "runtime/config/ds_config.h"
#include "runtime/plan/zero/residency_budgets.h"
#include "runtime/plan/zero/step_memory.h"

namespace ds::zero {

struct StepSetting {
  int ranks = 1;          // of the job
  int ranks_of_host = 0;  // the most; 0: all of them
  bool on_gpu = false;
};

// Tells whether fewer ranks than all that share the state have secondary shards (hpZ).
bool HasSecondaryShards(const config::ZeroConfig& zero, int shards);

// Takes from a config all but the model's units, what they make of a micro-batch, and its inputs.
StepMemoryInput DescribeStep(const config::DsConfig& config, const StepSetting& setting);

// The windows of the step, once it has its units.
StepWindows ChooseWindows(const config::DsConfig& config, const StepMemoryInput& step);

}  // namespace ds::zero
