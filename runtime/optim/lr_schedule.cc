#include "runtime/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>

namespace ds::optim {
namespace {

double WarmupGamma(const config::SchedulerConfig& scheduler, std::int64_t index) {
  const std::int64_t steps = std::max<std::int64_t>(2, scheduler.warmup_num_steps);
  if (index >= steps) return 1.0;
  if (scheduler.warmup_type == config::WarmupType::kLinear) {
    return static_cast<double>(index) / static_cast<double>(steps);
  }
  return std::log(static_cast<double>(index + 1)) / std::log(static_cast<double>(steps));
}

}  // namespace

double LearningRate(const config::OptimizerConfig& optimizer,
                    const config::SchedulerConfig& scheduler, std::int64_t advances) {
  if (scheduler.type == config::SchedulerType::kConstant) return optimizer.lr;
  const std::int64_t index = advances - 1;
  if (index < 0) return scheduler.warmup_min_lr;
  return scheduler.warmup_min_lr +
         (scheduler.warmup_max_lr - scheduler.warmup_min_lr) * WarmupGamma(scheduler, index);
}

}  // namespace ds::optim
