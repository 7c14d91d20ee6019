#pragma once

// PlanUnitMemory: predicts the memory of each rank that trains a model of units, such as a Python
// module, from the parameters of the units and from activations that the caller has measured. Pure.
// PlanJobMemory is its counterpart for decoders, with known activations.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/plan/memory/block_sizes.h"
#include "runtime/plan/zero/describe_step.h"
#include "runtime/plan/zero/step_memory.h"

namespace ds::engine {

struct PlannedUnit {
  std::string name;
  models::BlockSizes sizes;
  zero::BlockActivations activations;  // of one micro-batch
};

// Plans data-parallel ranks. A micro-batch's inputs have `batch_bytes`. Returns Unimplemented for
// optimizers and settings with unknown memory.
StatusOr<zero::StepMemory> PlanUnitMemory(const config::DsConfig& config,
                                          const zero::StepSetting& setting,
                                          const std::vector<PlannedUnit>& units,
                                          std::int64_t batch_bytes);

// Returns the first feature of the config with memory that no plan can predict, or "".
std::string FindUnknownMemory(const config::DsConfig& config);

}  // namespace ds::engine
