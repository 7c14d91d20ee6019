#include "runtime/optim/adagrad.h"

#include "runtime/optim/kernels/flat_update.h"

namespace ds::optim {

std::span<const std::string_view> Adagrad::state_names(const ParameterGroup&) const {
  static constexpr std::string_view kNames[] = {"sum"};
  return kNames;
}

void Adagrad::ApplyRates(const PartRates& rates, const Part& part) {
  const double elapsed = static_cast<double>(rates.step - 1);
  const AdagradCoefficients c{
      .gradient_scale = static_cast<float>(rates.gradient_scale),
      .l2 = static_cast<float>(rates.weight_decay),
      .lr = static_cast<float>(rates.lr / (1.0 + elapsed * config_.lr_decay)),
      .eps = static_cast<float>(config_.eps)};
  UpdatePart(AdagradOp{c}, part);
}

}  // namespace ds::optim
