#include "runtime/optim/adam.h"

#include <cmath>

#include "runtime/optim/kernels/flat_update.h"

namespace ds::optim {
namespace {

AdamCoefficients MakeCoefficients(const config::OptimizerConfig& config, const Update& update) {
  const auto t = static_cast<double>(update.step);
  const double correction1 = config.bias_correction ? 1.0 - std::pow(config.beta1, t) : 1.0;
  const double correction2 = config.bias_correction ? 1.0 - std::pow(config.beta2, t) : 1.0;
  const double decoupled = config.adam_w_mode ? config.weight_decay : 0.0;
  return {.gradient_scale = static_cast<float>(update.gradient_scale),
          .decay_factor = static_cast<float>(1.0 - update.lr * decoupled),
          .l2 = static_cast<float>(config.adam_w_mode ? 0.0 : config.weight_decay),
          .one_minus_beta1 = static_cast<float>(1.0 - config.beta1),
          .beta2 = static_cast<float>(config.beta2),
          .one_minus_beta2 = static_cast<float>(1.0 - config.beta2),
          .step_size = static_cast<float>(update.lr / correction1),
          .inverse_correction2 = static_cast<float>(1.0 / std::sqrt(correction2)),
          .eps = static_cast<float>(config.eps)};
}

}  // namespace

std::span<const std::string_view> Adam::state_names(const ParameterGroup&) const {
  static constexpr std::string_view kNames[] = {"exp_avg", "exp_avg_sq"};
  return kNames;
}

void Adam::Apply(const Update& update, const Part& part) {
  config::OptimizerConfig options = config();
  options.beta1 = Beta1(update, part);
  options.weight_decay = WeightDecay(part);
  Update own = update;
  own.lr = Rate(update, part);
  UpdatePart(AdamOp{MakeCoefficients(options, own)}, part, Launch(part));
}

}  // namespace ds::optim
