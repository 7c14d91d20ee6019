#pragma once

// Computations of `dsrun plan` from a model and a ds_config: parallel layouts that fit into memory,
// and the steps of pipeline stages.

#include <cstdint>
#include <optional>
#include <string>

#include "cli/flags/flag_parser.h"
#include "cli/launch/launch_plan.h"
#include "runtime/base/status.h"
#include "runtime/config/file/check_config.h"
#include "runtime/plan/estimate/stage_plans.h"
#include "runtime/plan/mesh/degrees.h"
#include "runtime/plan/pipeline/schedule.h"

namespace ds::cli {

struct PlanFlags {
  bool json = false;
  std::string mesh;
  std::string model;
  std::string schedule = "1f1b";
  std::string partition = "parameters";
  int micro_batches = 0;  // 0 = twice the stages
  int chunks = 0;         // 0 = the minimum of the schedule
  std::string svg;
  std::string of_schedule;  // the first given flag among these five; "" = none
  bool fit = false;
  std::string memory;  // per rank, for `fit`
  std::optional<std::int64_t> seq_len;
  double expert_load = 1.0;      // see engine::JobShape
  std::string deepspeed_config;  // "" = bf16 and AdamW
};

// Adds the flags of `dsrun plan` beyond the launch flags.
void AddPlanFlags(FlagParser* parser, PlanFlags* flags);

// Prints the parallel layouts of the model that fit into a rank's memory limit. Returns false if
// there is none.
StatusOr<bool> PrintFits(const PlanFlags& flags, const WorldPlan& world);

// Reads --deepspeed_config, or its default, for `ranks` ranks of a mesh. `degrees` replace the
// degrees of the config. The returned result has no errors.
StatusOr<config::CheckResult> ReadMeshConfig(const PlanFlags& flags, int ranks,
                                             const topology::Degrees& degrees);

// Returns the stages of the schedule, on the mesh that `checked` was read for.
StatusOr<plan::StagePlans> PlanStagesOf(const PlanFlags& flags, config::CheckResult checked,
                                        const pipeline::Schedule& schedule,
                                        const topology::Degrees& degrees, const WorldPlan& world);

}  // namespace ds::cli
