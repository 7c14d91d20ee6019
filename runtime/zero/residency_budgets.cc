#include "runtime/zero/residency_budgets.h"

#include <algorithm>
#include <limits>

namespace ds::zero {

ResidencyBudgets MakeResidencyBudgets(const config::ZeroConfig& config, std::int64_t element_size) {
  const config::ZeroConfig defaults;
  ResidencyBudgets budgets;
  const auto set = [&](std::int64_t elements, std::int64_t standard, std::int64_t* bytes) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    if (elements != standard) *bytes = std::min(elements, kMost / element_size) * element_size;
  };
  set(config.prefetch_bucket_size, defaults.prefetch_bucket_size, &budgets.prefetch_bytes);
  set(config.max_live_parameters, defaults.max_live_parameters, &budgets.max_live_bytes);
  set(config.max_reuse_distance, defaults.max_reuse_distance, &budgets.reuse_bytes);
  set(config.param_persistence_threshold, defaults.param_persistence_threshold,
      &budgets.persistent_parameter_bytes);
  set(config.model_persistence_threshold, defaults.model_persistence_threshold,
      &budgets.persistent_bytes);
  return budgets;
}

}  // namespace ds::zero
