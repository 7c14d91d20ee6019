#include "runtime/optim/adagrad.h"

#include "runtime/optim/cpu_blocks.h"
#include "runtime/optim/device_update.h"

namespace ds::optim {
namespace {

void ApplyOnDevice(const AdagradCoefficients& c, const Part& part) {
  const at::Tensor gradient = ScaledGradient(c.gradient_scale, part);
  gradient.add_(part.parameter, c.l2);
  part.state[0].addcmul_(gradient, gradient);
  part.parameter.addcdiv_(gradient, part.state[0].sqrt().add_(c.eps), -c.lr);
  Publish(part);
}

}  // namespace

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
  if (!UsesKernels(part)) return ApplyOnDevice(c, part);
  ForEachBlock(part, [&](const FlatBlock& block) { AdagradKernel(c, block); });
}

}  // namespace ds::optim
