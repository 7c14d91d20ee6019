#include "runtime/precision/make_loss_scaler.h"

#include <cmath>
#include <limits>

namespace ds::precision {
namespace {

// torch.amp.GradScaler as DeepSpeed makes it, without arguments. It has no minimum; below that of
// fp32's normal numbers the scale is none.
constexpr LossScaleRule kGradScaler = {.dynamic = true,
                                       .initial_scale = 65536.0,
                                       .window = 2000,
                                       .minimum = std::numeric_limits<float>::min(),
                                       .hysteresis = 1,
                                       .first_step_counts = true};

}  // namespace

LossScaler MakeLossScaler(const config::DsConfig& config) {
  const config::TorchAutocastConfig& autocast = config.torch_autocast;
  if (autocast.enabled && autocast.dtype == config::DataType::kFp16) {
    return LossScaler(kGradScaler);
  }
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
