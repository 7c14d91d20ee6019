#include "runtime/plan/zero/zenflow_schedule.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/base/saturating.h"

namespace ds::zero {

std::int64_t SelectInterval(const config::ZenFlowConfig& config) {
  if (!config.counts_epochs) return config.select_interval;
  return SaturatingProduct(config.select_interval, config.steps_per_epoch.value_or(0));
}

ZenFlowStep PlanZenFlowStep(const config::ZenFlowConfig& config, std::int64_t update) {
  const std::int64_t warm_up = config.full_warm_up_rounds, interval = SelectInterval(config);
  const auto ends_interval = [&](std::int64_t updates) {
    return interval != 0 && updates % interval == 0;
  };
  ZenFlowStep step{.has_important = update > warm_up};
  step.selects = step.has_important && (update == warm_up + 1 || ends_interval(update - 1));
  step.updates_unselected =
      update <= warm_up || ends_interval(update) ||
      (config.update_interval && (update - warm_up) % *config.update_interval == 0);
  return step;
}

std::vector<std::int64_t> ChooseColumns(const std::vector<float>& sums, double ratio) {
  const auto all = static_cast<double>(sums.size());
  const auto count =
      std::min(sums.size(), std::max<std::size_t>(1, static_cast<std::size_t>(all * ratio)));
  std::vector<std::int64_t> columns(sums.size());
  std::iota(columns.begin(), columns.end(), 0);
  const auto at = [&](std::int64_t column) { return sums[static_cast<std::size_t>(column)]; };
  std::stable_sort(columns.begin(), columns.end(),
                   [&](std::int64_t a, std::int64_t b) { return at(a) > at(b); });
  columns.resize(count);
  std::sort(columns.begin(), columns.end());
  return columns;
}

bool ZenFlowBalance::Add(const std::vector<ZenFlowSums>& matrices,
                         const config::ZenFlowConfig& config) {
  ++steps_;
  sums_.resize(matrices.size());
  std::int64_t heavy = 0;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    sums_[i].important += matrices[i].important;
    sums_[i].unselected += matrices[i].unselected;
    const double important = sums_[i].important / static_cast<double>(steps_) / config.topk_ratio;
    heavy += sums_[i].unselected / (1.0 - config.topk_ratio) >= important ? 1 : 0;
  }
  return heavy >=
         static_cast<std::int64_t>(config.auto_ratio * static_cast<double>(matrices.size()));
}

void ZenFlowBalance::Clear() {
  steps_ = 0;
  sums_.clear();
}

void ZenFlowBalance::Load(std::int64_t steps, std::vector<ZenFlowSums> sums) {
  steps_ = steps;
  sums_ = std::move(sums);
}

std::int64_t CountImportant(const config::ZenFlowConfig& config, std::int64_t elements) {
  return static_cast<std::int64_t>(static_cast<double>(elements) * config.topk_ratio);
}

}  // namespace ds::zero
