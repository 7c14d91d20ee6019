#pragma once

// PrintFits and PlanStagesOf: what `dsrun plan` works out of a model and a ds_config, ways of
// cutting the model that fit, and the steps of a pipeline's stages.

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
  int micro_batches = 0;  // 0: twice the stages
  int chunks = 0;         // 0: the fewest that the schedule has
  std::string svg;
  std::string of_schedule;  // one of those five that is given; "" where none is
  bool fit = false;
  std::string memory;  // of a rank, for fit
  std::optional<std::int64_t> seq_len;
  double expert_load = 1.0;      // engine::JobShape
  std::string deepspeed_config;  // "" = bf16 and AdamW
};

// Adds the flags of `dsrun plan` beyond the launch flags.
void AddPlanFlags(FlagParser* parser, PlanFlags* flags);

// Prints the ways of cutting the model with which a rank of the plan holds no more than it may;
// false where there is none.
StatusOr<bool> PrintFits(const PlanFlags& flags, const WorldPlan& world);

// Reads --deepspeed_config, or what stands for it, for so many ranks of a mesh of these degrees,
// which count in place of the config's. The result is good.
StatusOr<config::CheckResult> ReadMeshConfig(const PlanFlags& flags, int ranks,
                                             const topology::Degrees& degrees);

// The stages of the schedule, on the mesh that `checked` has been read for.
StatusOr<plan::StagePlans> PlanStagesOf(const PlanFlags& flags, config::CheckResult checked,
                                        const pipeline::Schedule& schedule,
                                        const topology::Degrees& degrees, const WorldPlan& world);

}  // namespace ds::cli
