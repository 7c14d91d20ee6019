#include "runtime/optim/sgd.h"

#include "runtime/optim/cpu_blocks.h"
#include "runtime/optim/device_update.h"

namespace ds::optim {
namespace {

void ApplyOnDevice(const SgdCoefficients& c, const Part& part) {
  const at::Tensor gradient = ScaledGradient(c.gradient_scale, part);
  gradient.add_(part.parameter, c.l2);
  if (part.state.empty()) {
    part.parameter.sub_(gradient, c.lr);
  } else {
    const at::Tensor& momentum = part.state[0];
    momentum.mul_(c.momentum).add_(gradient, c.gradient_share);
    part.parameter.sub_(gradient, c.lr * c.direct_share).sub_(momentum, c.lr * c.momentum_share);
  }
  Publish(part);
}

}  // namespace

std::string_view Sgd::name() const {
  return config().momentum == 0.0 ? "SGD" : "SGD with momentum";
}

std::span<const std::string_view> Sgd::state_names(const ParameterGroup&) const {
  static constexpr std::string_view kNames[] = {"momentum_buffer"};
  return std::span(kNames).first(config().momentum == 0.0 ? 0 : 1);
}

void Sgd::Apply(const Update& update, const Part& part) {
  const bool first = update.step == 1;
  const double momentum = update.beta1.value_or(config().momentum);
  const SgdCoefficients c{
      .gradient_scale = static_cast<float>(update.gradient_scale),
      .l2 = static_cast<float>(WeightDecay(part)),
      .momentum = static_cast<float>(momentum),
      .gradient_share = static_cast<float>(first ? 1.0 : 1.0 - config().dampening),
      .direct_share = config().nesterov ? 1.0F : 0.0F,
      .momentum_share = static_cast<float>(config().nesterov ? momentum : 1.0),
      .lr = static_cast<float>(Rate(update, part))};
  if (!UsesKernels(part)) return ApplyOnDevice(c, part);
  ForEachBlock(part, [&](const FlatBlock& block) { SgdKernel(c, block); });
}

}  // namespace ds::optim
