#include "runtime/optim/lion.h"

#include "runtime/optim/kernels/flat_update.h"

namespace ds::optim {

std::span<const std::string_view> Lion::state_names(const ParameterGroup&) const {
  static constexpr std::string_view kNames[] = {"exp_avg"};
  return kNames;
}

void Lion::Apply(const Update& update, const Part& part) {
  const double beta1 = Beta1(update, part);
  // 1 - beta is rounded as DeepSpeed rounds it, in fp32: for 0.999 that is five digits.
  const LionCoefficients c{
      .gradient_scale = static_cast<float>(update.gradient_scale),
      .decay_factor = static_cast<float>(1.0 - Rate(update, part) * WeightDecay(part)),
      .one_minus_beta1 = 1.0F - static_cast<float>(beta1),
      .one_minus_beta2 = 1.0F - static_cast<float>(config().beta2),
      .lr = static_cast<float>(Rate(update, part))};
  UpdatePart(LionOp{c}, part, Launch(part));
}

}  // namespace ds::optim
