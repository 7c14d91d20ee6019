#pragma once

// PlanStages: what the ranks of every stage of a pipeline hold in a step, and what they gather,
// reduce and send, for `dsrun plan`. By the code that ranks follow (runtime/plan/memory). Pure;
// safe from any thread.

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
  std::vector<int> cut;  // engine::CutStages
  std::vector<zero::StepMemory> stages;
};

// Refuses what engine::CheckMemoryIsKnown does.
StatusOr<StagePlans> PlanStages(const config::DsConfig& config, const engine::JobShape& job);

// Two lines for each stage, under one for all. Ends with a newline.
std::string ToText(const StagePlans& plans);
// [engine::ToJson of a stage's step], by stage.
nlohmann::ordered_json ToJson(const StagePlans& plans);

}  // namespace ds::plan
