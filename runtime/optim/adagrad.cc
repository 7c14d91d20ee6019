#include "runtime/optim/adagrad.h"

#include "runtime/optim/kernels/flat_update.h"

namespace ds::optim {

std::span<const std::string_view> Adagrad::state_names(const ParameterGroup&) const {
  static constexpr std::string_view kNames[] = {"sum"};
  return kNames;
}

void Adagrad::Apply(const Update& update, const Part& part) {
  const double elapsed = static_cast<double>(update.step - 1);
  const AdagradCoefficients c{
      .gradient_scale = static_cast<float>(update.gradient_scale),
      .l2 = static_cast<float>(WeightDecay(part)),
      .lr = static_cast<float>(Rate(update, part) / (1.0 + elapsed * config().lr_decay)),
      .eps = static_cast<float>(config().eps)};
  UpdatePart(AdagradOp{c}, part, Launch(part));
}

}  // namespace ds::optim
