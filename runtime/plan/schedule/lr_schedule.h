#pragma once

// The learning rate of each update, and the momentum where a schedule moves it: pure functions of
// the config and of how often the schedule was advanced, equal to what DeepSpeed's and PyTorch's
// schedulers leave in the optimizer (tests/unit/optim/goldens/schedules.json).
//
// A schedule is advanced once after every applied update, not after a skipped one, so update k
// (from 1) uses the values after k - 1 advances. DeepSpeed's off-by-one is kept: its schedules set
// their first value when they are built and again at their first index, 0, so that WarmupLR's first
// two updates use the same rate.

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

// Computes the values of the update that follows `advances` >= 0 advances, in a parameter group
// whose own lr is `base_lr`.
ScheduledValues ValuesAfter(const config::Schedule& schedule, double base_lr,
                            std::int64_t advances);

// The last update that the schedule is defined for, if there is one. OneCycleLR ends with its
// total_steps (PyTorch fails one update later, after one with a rate beyond the end of its curve);
// OneCycle ends where decay_mom_rate has taken the momentum to 1.
std::optional<std::int64_t> LastUpdate(const config::Schedule& schedule);
// The first to end, where each parameter group has its own.
std::optional<std::int64_t> LastUpdateOf(const config::DsConfig& config);

// Refuses a schedule of the config that has no rate for so many steps.
Status CheckLasts(const config::DsConfig& config, std::int64_t steps);

}  // namespace ds::optim
