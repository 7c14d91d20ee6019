#pragma once

// DeepSpeed's command-line flags for schedules (its add_tuning_arguments): --lr_schedule and the
// parameters of the schedule, with DeepSpeed's defaults. They take the place of the ds_config's
// `scheduler` section.

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/base/status.h"

namespace CLI {
class App;
}

namespace ds::cli {

struct ScheduleFlags {
  std::string lr_schedule;                              // "" = not given
  std::map<std::string, nlohmann::ordered_json> given;  // parameters, by their names

  bool any() const { return !lr_schedule.empty() || !given.empty(); }
};

// Declares the flags on `app`, writing into `flags` (which outlives the parse).
void AddScheduleFlags(CLI::App& app, ScheduleFlags* flags);

// The `scheduler` section that the flags ask for. Refuses parameters without --lr_schedule or of
// another schedule, and a schedule that these flags do not know. Requires flags.any().
//
// OneCycle, as in DeepSpeed, always cycles the momentum, whether --cycle_momentum is given or not;
// other than in DeepSpeed, whose second step size of -1 its own schedule refuses, -1 means as many
// steps as the first.
StatusOr<nlohmann::ordered_json> MakeSchedulerSection(const ScheduleFlags& flags);

}  // namespace ds::cli
