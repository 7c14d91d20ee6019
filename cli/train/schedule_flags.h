#pragma once

// Flags for schedules, which take the place of the ds_config's `scheduler` section.
//
// DeepSpeed's (its add_tuning_arguments) are --lr_schedule and the parameters of the schedule, with
// DeepSpeed's defaults. Those of transformers' Trainer are --lr_scheduler_type and
// --lr_scheduler_kwargs; lengths come from --warmup_steps and from the steps of the run.

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/base/status.h"
#include "runtime/config/check/job_facts.h"

namespace CLI {
class App;
}

namespace ds::cli {

struct ScheduleFlags {
  std::string lr_schedule;                              // "" = not given
  std::map<std::string, nlohmann::ordered_json> given;  // parameters, by their names
  std::string lr_scheduler_type;                        // "" = not given
  std::string lr_scheduler_kwargs;                      // a JSON object; "" = not given

  bool is_transformers() const {
    return !lr_scheduler_type.empty() || !lr_scheduler_kwargs.empty();
  }
  bool any() const { return !lr_schedule.empty() || !given.empty() || is_transformers(); }
  // The flag that names the schedule.
  std::string name() const { return is_transformers() ? "--lr_scheduler_type" : "--lr_schedule"; }
};

// Declares the flags on `app`, writing into `flags` (which outlives the parse).
void AddScheduleFlags(CLI::App& app, ScheduleFlags* flags);

// False when the flags name a schedule without a warm-up: the run loses the warm-up that it had.
bool LeavesAWarmup(const ScheduleFlags& flags);

// A schedule of the flags is laid over this: the `scheduler` section that they replace (null for
// none), and what other flags say.
struct ScheduleBelow {
  nlohmann::ordered_json section;
  config::TrainingFlags training;
};

// The `scheduler` section that the flags ask for. Refuses parameters without --lr_schedule or of
// another schedule, and a schedule that these flags do not know. Requires flags.any(). Where
// `below` gives the rate or the warm-up, DeepSpeed's defaults for them do not hold.
//
// The number of the section's warm-up stays where no flag gives another, and between schedules of
// transformers the other parameters stay, too, as Trainer keeps its other arguments. One that the
// new schedule does not take is refused by its name, as get_scheduler refuses it.
//
// OneCycle, as in DeepSpeed, always cycles the momentum, whether --cycle_momentum is given or not;
// other than in DeepSpeed, whose second step size of -1 its own schedule refuses, -1 means as many
// steps as the first.
StatusOr<nlohmann::ordered_json> MakeSchedulerSection(const ScheduleFlags& flags,
                                                      const ScheduleBelow& below);

}  // namespace ds::cli
