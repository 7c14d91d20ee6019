#include "runtime/precision/make_loss_scaler.h"

#include <cmath>

namespace ds::precision {

LossScaler MakeLossScaler(const config::DsConfig& config) {
  const config::Fp16Config& fp16 = config.fp16;
  if (!fp16.enabled) return LossScaler({});
  if (fp16.loss_scale > 0.0) return LossScaler({.initial_scale = fp16.loss_scale});
  LossScaleRule rule{.dynamic = true,
                     .initial_scale = std::ldexp(1.0, static_cast<int>(fp16.initial_scale_power)),
                     .window = fp16.loss_scale_window,
                     .minimum = fp16.min_loss_scale};
  if (config.zero_optimization.stage > 0) {
    rule.hysteresis = fp16.hysteresis;
    rule.consecutive_hysteresis = fp16.consecutive_hysteresis;
  }
  return LossScaler(rule);
}

}  // namespace ds::precision
