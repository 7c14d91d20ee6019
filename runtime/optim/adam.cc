#include "runtime/optim/adam.h"

#include <cmath>

#include "runtime/optim/kernels/flat_update.h"

namespace ds::optim {

std::span<const std::string_view> Adam::state_names(const ParameterGroup&) const {
  static constexpr std::string_view kNames[] = {"exp_avg", "exp_avg_sq"};
  return kNames;
}

void Adam::ApplyRates(const PartRates& rates, const Part& part) {
  const auto t = static_cast<double>(rates.step);
  const bool corrects = config_.bias_correction;
  const double correction1 = corrects ? 1.0 - std::pow(rates.beta1, t) : 1.0;
  const double correction2 = corrects ? 1.0 - std::pow(config_.beta2, t) : 1.0;
  const double decoupled = config_.adam_w_mode ? rates.weight_decay : 0.0;
  const AdamCoefficients c{.gradient_scale = static_cast<float>(rates.gradient_scale),
                           .decay_factor = static_cast<float>(1.0 - rates.lr * decoupled),
                           .l2 = static_cast<float>(config_.adam_w_mode ? 0.0 : rates.weight_decay),
                           .one_minus_beta1 = static_cast<float>(1.0 - rates.beta1),
                           .beta2 = static_cast<float>(config_.beta2),
                           .one_minus_beta2 = static_cast<float>(1.0 - config_.beta2),
                           .step_size = static_cast<float>(rates.lr / correction1),
                           .inverse_correction2 = static_cast<float>(1.0 / std::sqrt(correction2)),
                           .eps = static_cast<float>(config_.eps)};
  UpdatePart(AdamOp{c}, part);
}

}  // namespace ds::optim
