#include "runtime/optim/adam.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

#include <cmath>
#include <vector>

#include "runtime/optim/cpu_blocks.h"
#include "runtime/optim/device_update.h"

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

// LibTorch's fused kernel. Without bias correction the step count is so large that beta^t is 0.
void ApplyOnDevice(const config::OptimizerConfig& config, const Update& update, const Part& part) {
  constexpr double kEndlessSteps = 1e9;
  const at::Tensor gradient = ScaledGradient(update.gradient_scale, part);
  const double count = config.bias_correction ? static_cast<double>(update.step) : kEndlessSteps;
  const at::Tensor steps = at::full({}, count, part.parameter.options());
  const std::vector<at::Tensor> parameter{part.parameter}, m{part.state[0]}, v{part.state[1]};
  if (config.adam_w_mode) {
    at::_fused_adamw_(parameter, {gradient}, m, v, {}, {steps}, update.lr, config.beta1,
                      config.beta2, config.weight_decay, config.eps, /*amsgrad=*/false,
                      /*maximize=*/false);
  } else {
    at::_fused_adam_(parameter, {gradient}, m, v, {}, {steps}, update.lr, config.beta1,
                     config.beta2, config.weight_decay, config.eps, /*amsgrad=*/false,
                     /*maximize=*/false);
  }
  Publish(part);
}

}  // namespace

std::span<const std::string_view> Adam::state_names(const ParameterGroup&) const {
  static constexpr std::string_view kNames[] = {"exp_avg", "exp_avg_sq"};
  return kNames;
}

void Adam::Apply(const Update& update, const Part& part) {
  config::OptimizerConfig options = config();
  options.beta1 = update.beta1.value_or(options.beta1);
  options.weight_decay = WeightDecay(part);
  Update own = update;
  own.lr = Rate(update, part);
  if (!UsesKernels(part)) return ApplyOnDevice(options, own, part);
  const AdamCoefficients coefficients = MakeCoefficients(options, own);
  ForEachBlock(part, [&](const FlatBlock& block) { AdamKernel(coefficients, block); });
}

}  // namespace ds::optim
