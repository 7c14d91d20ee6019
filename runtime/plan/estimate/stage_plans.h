#pragma once

// PlanStages: plans the memory of each pipeline stage's ranks in a step, and the bytes they gather,
// reduce and send, for `dsrun plan`. Uses the code that ranks follow (runtime/plan/memory). Pure.
// Thread-safe.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"
#include "runtime/plan/memory/job_memory.h"

namespace ds::plan {

struct StagePlans {
  config::DsConfig config;
  engine::JobShape job;
  std::vector<int> split;  // engine::PartitionStages
  std::vector<zero::StepMemory> stages;
};

// Fails like engine::CheckMemoryIsKnown.
StatusOr<StagePlans> PlanStages(const config::DsConfig& config, const engine::JobShape& job);

// Returns one line for the job and two for each stage. Ends with a newline.
std::string ToText(const StagePlans& plans);
// Returns [engine::ToJson of a stage's step], by stage.
nlohmann::ordered_json ToJson(const StagePlans& plans);

}  // namespace ds::plan
