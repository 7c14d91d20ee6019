#include "runtime/zero/residency_budgets.h"

#include <algorithm>
#include <limits>

namespace ds::zero {

ResidencyBudgets MakeResidencyBudgets(const config::ZeroConfig& config, const ElementSizes& sizes,
                                      bool overlap) {
  const config::ZeroConfig defaults;
  ResidencyBudgets budgets;
  if (overlap) budgets.prefetch_bytes = budgets.reduce_bytes = ResidencyBudgets::kLargestPlace;
  std::int64_t size = sizes.parameter;
  const auto set = [&](std::int64_t config::ZeroConfig::*key, std::int64_t* bytes) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    const std::int64_t elements = config.*key;
    if (elements != defaults.*key) *bytes = std::min(elements, kMost / size) * size;
  };
  using config::ZeroConfig;
  set(&ZeroConfig::prefetch_bucket_size, &budgets.prefetch_bytes);
  set(&ZeroConfig::max_live_parameters, &budgets.max_live_bytes);
  set(&ZeroConfig::max_reuse_distance, &budgets.reuse_bytes);
  set(&ZeroConfig::param_persistence_threshold, &budgets.persistent_parameter_bytes);
  set(&ZeroConfig::model_persistence_threshold, &budgets.persistent_bytes);
  size = sizes.gradient;
  set(&ZeroConfig::reduce_bucket_size, &budgets.reduce_bytes);
  return budgets;
}

bool ChooseOverlap(const config::ZeroConfig& config, const CallSetting& setting) {
  return config.overlap_comm && (setting.spans_hosts || setting.on_gpu);
}

}  // namespace ds::zero
