#pragma once

// PyTorch's schedulers in closed form: what a chain of `advances` calls of step() arrives at, which
// differs from that chain by rounding only. Where PyTorch's chain and its own closed form disagree
// (total_iters 0), the chain counts, for it is what a training uses.

#include <cstdint>

#include "runtime/optim/schedule/lr_schedule.h"

namespace ds::optim {

ScheduledValues ValuesOf(const config::StepLr& s, double base_lr, std::int64_t advances);
ScheduledValues ValuesOf(const config::MultiStepLr& s, double base_lr, std::int64_t advances);
ScheduledValues ValuesOf(const config::ConstantLr& s, double base_lr, std::int64_t advances);
ScheduledValues ValuesOf(const config::LinearLr& s, double base_lr, std::int64_t advances);
ScheduledValues ValuesOf(const config::ExponentialLr& s, double base_lr, std::int64_t advances);
ScheduledValues ValuesOf(const config::PolynomialLr& s, double base_lr, std::int64_t advances);
ScheduledValues ValuesOf(const config::CosineAnnealingLr& s, double base_lr, std::int64_t advances);
ScheduledValues ValuesOf(const config::CosineAnnealingWarmRestarts& s, double base_lr,
                         std::int64_t advances);
ScheduledValues ValuesOf(const config::CyclicLr& s, double base_lr, std::int64_t advances);
ScheduledValues ValuesOf(const config::OneCycleLr& s, double base_lr, std::int64_t advances);

}  // namespace ds::optim
