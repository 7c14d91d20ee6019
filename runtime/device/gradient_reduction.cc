#include "runtime/device/gradient_reduction.h"

namespace ds::precision {

GradientReduction MakeGradientReduction(const config::DsConfig& config, int gradient_ranks) {
  const auto ranks = static_cast<double>(gradient_ranks);
  const double divisor = config.gradient_predivide_factor;
  if (config.gradient_allreduce_op == config::GradientReduceOp::kSum) return {.average = false};
  if (config.prescale_gradients) return {.average = false, .before = 1 / ranks};
  if (divisor == 1.0) return {};
  return {.average = false, .before = 1 / divisor, .after = divisor / ranks};
}

GradientReduction ForExperts(GradientReduction reduction, int expert) {
  if (reduction.average) reduction.after = 1.0 / expert;
  return reduction;
}

}  // namespace ds::precision
