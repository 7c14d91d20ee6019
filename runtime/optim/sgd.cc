#include "runtime/optim/sgd.h"

#include "runtime/optim/kernels/flat_update.h"

namespace ds::optim {

std::string_view Sgd::name() const { return config_.momentum == 0.0 ? "SGD" : "SGD with momentum"; }

std::span<const std::string_view> Sgd::state_names(const ParameterGroup&) const {
  static constexpr std::string_view kNames[] = {"momentum_buffer"};
  return std::span(kNames).first(config_.momentum == 0.0 ? 0 : 1);
}

void Sgd::ApplyRates(const PartRates& rates, const Part& part) {
  const bool first = rates.step == 1;
  const SgdCoefficients c{
      .gradient_scale = static_cast<float>(rates.gradient_scale),
      .l2 = static_cast<float>(rates.weight_decay),
      .momentum = static_cast<float>(rates.beta1),
      .gradient_share = static_cast<float>(first ? 1.0 : 1.0 - config_.dampening),
      .direct_share = config_.nesterov ? 1.0F : 0.0F,
      .momentum_share = static_cast<float>(config_.nesterov ? rates.beta1 : 1.0),
      .lr = static_cast<float>(rates.lr)};
  if (part.state.empty()) {
    UpdatePart(SgdOp{c}, part);
  } else {
    UpdatePart(SgdMomentumOp{c}, part);
  }
}

}  // namespace ds::optim
