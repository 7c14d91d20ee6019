#pragma once

// These functions compute the learning rate of each update, and the momentum if a schedule changes
// it, from the config and the number of schedule advances. Pure. Values equal those that
// DeepSpeed's and PyTorch's schedulers set in the optimizer
// (tests/unit/optim/goldens/schedules.json).
//
// Advance a schedule once after every applied update, but not after a skipped one: update k (from
// 1) uses the values after k - 1 advances. DeepSpeed's off-by-one is kept: its schedules set their
// first value when they are built and again at their first index, 0, so WarmupLR's first two
// updates use the same rate.

#include <cstdint>
#include <optional>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"

namespace ds::optim {

struct ScheduledValues {
  double lr = 0.0;
  // Adam's beta1 or SGD's momentum, for schedules that cycle it.
  std::optional<double> momentum;
};

// Returns the values of the update that follows `advances` >= 0 advances, in a parameter group with
// an lr of `base_lr`.
ScheduledValues ValuesAfter(const config::Schedule& schedule, double base_lr,
                            std::int64_t advances);

// Returns the last update for which the schedule is defined, or nullopt if it never ends.
// OneCycleLR ends with its total_steps (PyTorch fails one update later, after one with a rate
// beyond the end of its curve). OneCycle ends when decay_mom_rate has raised the momentum to 1.
std::optional<std::int64_t> LastUpdate(const config::Schedule& schedule);
// Returns the earliest end of all schedules, if parameter groups have their own.
std::optional<std::int64_t> LastUpdateOf(const config::DsConfig& config);

// Refuses a schedule of the config that has no rate for `steps` steps.
Status CheckScheduleCovers(const config::DsConfig& config, std::int64_t steps);

}  // namespace ds::optim
