#include "runtime/optim/lion.h"

#include "runtime/optim/kernels/flat_update.h"

namespace ds::optim {

std::span<const std::string_view> Lion::state_names(const ParameterGroup&) const {
  static constexpr std::string_view kNames[] = {"exp_avg"};
  return kNames;
}

void Lion::ApplyRates(const PartRates& rates, const Part& part) {
  // 1 - beta is rounded as DeepSpeed rounds it, in fp32: for 0.999 that is five digits.
  const LionCoefficients c{.gradient_scale = static_cast<float>(rates.gradient_scale),
                           .decay_factor = static_cast<float>(1.0 - rates.lr * rates.weight_decay),
                           .one_minus_beta1 = 1.0F - static_cast<float>(rates.beta1),
                           .one_minus_beta2 = 1.0F - static_cast<float>(config_.beta2),
                           .lr = static_cast<float>(rates.lr)};
  UpdatePart(LionOp{c}, part);
}

}  // namespace ds::optim
