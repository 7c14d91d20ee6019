#pragma once

// Flags for learning rate schedules. They replace the ds_config's `scheduler` section.
//
// DeepSpeed's flags (its add_tuning_arguments) are --lr_schedule and the schedule's parameters,
// with DeepSpeed's defaults. The flags of transformers' Trainer are --lr_scheduler_type and
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
  std::map<std::string, nlohmann::ordered_json> given;  // parameters by name
  std::string lr_scheduler_type;                        // "" = not given
  std::string lr_scheduler_kwargs;                      // a JSON object; "" = not given

  bool is_transformers() const {
    return !lr_scheduler_type.empty() || !lr_scheduler_kwargs.empty();
  }
  bool any() const { return !lr_schedule.empty() || !given.empty() || is_transformers(); }
  // Returns the flag that names the schedule.
  std::string name() const { return is_transformers() ? "--lr_scheduler_type" : "--lr_schedule"; }
};

// Declares the flags on `app`. Parsing writes into `flags`, which must outlive the parse.
void AddScheduleFlags(CLI::App& app, ScheduleFlags* flags);

// Returns false if the flags select a schedule without a warm-up, so the run loses its previous
// warm-up.
bool TakesWarmup(const ScheduleFlags& flags);

// The settings under the schedule flags: the `scheduler` section that they replace (null if none),
// and the other training flags.
struct ScheduleBelow {
  nlohmann::ordered_json section;
  config::TrainingFlags training;
};

// Returns the `scheduler` section that the flags request. Requires flags.any(). Rejects unknown
// schedules, and parameters without --lr_schedule or of another schedule. If `below` sets the rate
// or the warm-up, DeepSpeed's defaults for them are not used.
//
// The section's number of warm-up steps is kept unless a flag sets another. Between transformers
// schedules the other parameters are kept as well, as Trainer keeps its other arguments. A kept
// parameter that the new schedule does not accept is rejected by name, as in get_scheduler.
//
// OneCycle always cycles the momentum, with or without --cycle_momentum, as in DeepSpeed.
// DeepSpeed's default second step size of -1 is rejected by its own schedule; here -1 means the
// same number of steps as the first.
StatusOr<nlohmann::ordered_json> MakeSchedulerSection(const ScheduleFlags& flags,
                                                      const ScheduleBelow& below);

}  // namespace ds::cli
