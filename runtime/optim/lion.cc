#include "runtime/optim/lion.h"

#include "runtime/optim/cpu_blocks.h"
#include "runtime/optim/device_update.h"

namespace ds::optim {
namespace {

void ApplyOnDevice(const LionCoefficients& c, const Part& part) {
  const at::Tensor gradient = ScaledGradient(c.gradient_scale, part);
  const at::Tensor& momentum = part.state[0];
  const at::Tensor difference = gradient.sub(momentum);
  const at::Tensor direction = momentum.add(difference, c.one_minus_beta1).sign_();
  momentum.add_(difference, c.one_minus_beta2);
  part.parameter.mul_(c.decay_factor).sub_(direction, c.lr);
  Publish(part);
}

}  // namespace

std::span<const std::string_view> Lion::state_names(const ParameterGroup&) const {
  static constexpr std::string_view kNames[] = {"exp_avg"};
  return kNames;
}

void Lion::Apply(const Update& update, const Part& part) {
  const double beta1 = Beta1(update);
  // 1 - beta is rounded as DeepSpeed rounds it, in fp32: for 0.999 that is five digits.
  const LionCoefficients c{
      .gradient_scale = static_cast<float>(update.gradient_scale),
      .decay_factor = static_cast<float>(1.0 - Rate(update, part) * WeightDecay(part)),
      .one_minus_beta1 = 1.0F - static_cast<float>(beta1),
      .one_minus_beta2 = 1.0F - static_cast<float>(config().beta2),
      .lr = static_cast<float>(Rate(update, part))};
  if (!UsesKernels(part)) return ApplyOnDevice(c, part);
  ForEachBlock(part, [&](const FlatBlock& block) { LionKernel(c, block); });
}

}  // namespace ds::optim
