#include "runtime/config/dynamic_batching.h"

#include <cmath>

namespace ds::config {

double RateFactor(DynamicBatching::RateScaling scaling, std::int64_t base, std::int64_t samples) {
  if (scaling == DynamicBatching::RateScaling::kNone) return 1.0;
  const double ratio = static_cast<double>(samples) / static_cast<double>(base);
  return scaling == DynamicBatching::RateScaling::kLinear ? ratio : std::sqrt(ratio);
}

}  // namespace ds::config
