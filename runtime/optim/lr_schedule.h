#pragma once

// The learning rate of each update: a pure function of the config and of how often the schedule was
// advanced, with DeepSpeed's off-by-one kept.
//
// A schedule is advanced once after every applied update (not after a skipped one), so update k
// (from 1) uses the rate after k - 1 advances. WarmupLR's index i starts at -1, where the rate is
// warmup_min_lr, and is k - 2 for update k.

#include <cstdint>

#include "runtime/config/ds_config.h"

namespace ds::optim {

// The rate of the update that follows `advances` >= 0 advances.
// Constant: the optimizer's lr. WarmupLR, with n = max(2, warmup_num_steps) and i = advances - 1:
// min + (max - min) * gamma, gamma = ln(i + 1) / ln(n) or i / n while i < n, then 1.
double LearningRate(const config::OptimizerConfig& optimizer,
                    const config::SchedulerConfig& scheduler, std::int64_t advances);

}  // namespace ds::optim
