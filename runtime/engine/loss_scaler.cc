#include "runtime/engine/loss_scaler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace ds::precision {
namespace {

constexpr double kFactor = 2.0;

template <typename T>
Status Read(const nlohmann::json& state, const char* key, T* value) {
  const auto found = state.find(key);
  if (found == state.end() || !found->is_number()) {
    return DataLossError("the loss scaler's state has no number \"" + std::string(key) + "\"");
  }
  *value = found->get<T>();
  return OkStatus();
}

std::string NumberText(double value) { return fmt::format("{}", value); }

// The rule of torch.amp.GradScaler as DeepSpeed makes it, without arguments. It has no minimum; a
// scale below fp32's normal numbers is invalid.
constexpr LossScaleRule kGradScaler = {.dynamic = true,
                                       .initial_scale = 65536.0,
                                       .window = 2000,
                                       .minimum = std::numeric_limits<float>::min(),
                                       .hysteresis = 1,
                                       .first_step_counts = true};

}  // namespace

LossScaler::LossScaler(const LossScaleRule& rule)
    : rule_(rule), scale_(rule.initial_scale), lives_(rule.hysteresis.value_or(1)) {}

Status LossScaler::Update(bool overflow) {
  if (rule_.dynamic) {
    if (overflow) {
      DS_RETURN_IF_ERROR(Shrink());
      last_overflow_ = steps_;
    } else {
      Grow();
    }
  }
  ++steps_;
  return OkStatus();
}

std::string LossScaler::DescribeOverflow(double before) const {
  const std::string now = NumberText(scale_);
  if (!rule_.dynamic) return "the loss scale is fixed at " + now;
  if (scale_ < before) return "the loss scale changes from " + NumberText(before) + " to " + now;
  if (scale_ <= rule_.minimum) return "the loss scale stays at its minimum, " + now;
  return "the loss scale stays at " + now + " (hysteresis: " +
         (lives_ > 1 ? std::to_string(lives_) + " more overflows halve it)"
                     : "the next overflow halves it)");
}

Status LossScaler::Shrink() {
  if (rule_.hysteresis && lives_ > 1) {
    --lives_;
    return OkStatus();
  }
  if (rule_.hysteresis && scale_ <= rule_.minimum) {
    return FailedPreconditionError(
        "the fp16 loss scale is at its minimum, " + NumberText(rule_.minimum) +
        ", and the gradients still overflow; bf16 has the range of fp32");
  }
  scale_ = std::max(scale_ / kFactor, rule_.minimum);
  return OkStatus();
}

void LossScaler::Grow() {
  const std::int64_t lives = rule_.hysteresis.value_or(1);
  if (rule_.consecutive_hysteresis) lives_ = lives;
  const std::int64_t stable = steps_ - last_overflow_ - (rule_.first_step_counts ? 0 : 1);
  if (stable <= 0 || stable % rule_.window != 0) return;
  lives_ = lives;
  // The loss is multiplied by the scale in fp32.
  if (scale_ <= std::numeric_limits<float>::max() / kFactor) scale_ *= kFactor;
}

nlohmann::json LossScaler::State() const {
  return {{"dynamic", rule_.dynamic},
          {"scale", scale_},
          {"steps", steps_},
          {"last_overflow", last_overflow_},
          {"hysteresis", lives_}};
}

Status LossScaler::LoadState(const nlohmann::json& state) {
  LossScaler loaded(rule_);
  DS_RETURN_IF_ERROR(Read(state, "scale", &loaded.scale_));
  DS_RETURN_IF_ERROR(Read(state, "steps", &loaded.steps_));
  DS_RETURN_IF_ERROR(Read(state, "last_overflow", &loaded.last_overflow_));
  DS_RETURN_IF_ERROR(Read(state, "hysteresis", &loaded.lives_));
  const bool sane = std::isfinite(loaded.scale_) && loaded.scale_ > 0.0 && loaded.steps_ >= 0 &&
                    loaded.last_overflow_ >= -1 && loaded.last_overflow_ < loaded.steps_;
  if (!sane) return DataLossError("the loss scaler's state is not one: " + state.dump());
  // A static scaler's state, of a run in another precision: its scale is no start for a dynamic
  // one.
  const auto dynamic = state.find("dynamic");
  if (rule_.dynamic && dynamic != state.end() && *dynamic == false) return OkStatus();
  if (!rule_.dynamic) loaded.scale_ = scale_;
  loaded.lives_ = std::clamp<std::int64_t>(loaded.lives_, 1, rule_.hysteresis.value_or(1));
  *this = loaded;
  return OkStatus();
}

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
