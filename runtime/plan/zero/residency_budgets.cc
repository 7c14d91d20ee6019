#include "runtime/plan/zero/residency_budgets.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace ds::zero {

ResidencyBudgets MakeResidencyBudgets(const config::ZeroConfig& config, const ElementSizes& sizes,
                                      bool overlap) {
  ResidencyBudgets budgets;
  if (overlap) budgets.prefetch_bytes = budgets.reduce_bytes = ResidencyBudgets::kLargestNeed;
  const auto set = [](std::optional<std::int64_t> elements, std::int64_t size,
                      std::int64_t* bytes) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    if (elements) *bytes = std::min(*elements, kMost / size) * size;
  };
  set(config.prefetch_bucket_size, sizes.parameter, &budgets.prefetch_bytes);
  set(config.max_live_parameters, sizes.parameter, &budgets.max_live_bytes);
  set(config.max_reuse_distance, sizes.parameter, &budgets.reuse_bytes);
  set(config.param_persistence_threshold, sizes.parameter, &budgets.persistent_parameter_bytes);
  set(config.model_persistence_threshold, sizes.parameter, &budgets.persistent_bytes);
  set(config.reduce_bucket_size, sizes.gradient, &budgets.reduce_bytes);
  return budgets;
}

bool ChooseOverlap(const config::ZeroConfig& config, const CallSetting& setting) {
  return config.overlap_comm && (setting.spans_hosts || setting.on_gpu);
}

}  // namespace ds::zero
