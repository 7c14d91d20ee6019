#include "runtime/optim/kernels/update_ops.h"

#include <cmath>

#include "runtime/optim/kernels/optimizer_slice.h"

namespace ds::optim {

FlatOp MakeOp(const config::AdamConfig& config, const SliceRates& rates) {
  const auto t = static_cast<double>(rates.step);
  const bool corrects = config.bias_correction;
  const double correction1 = corrects ? 1.0 - std::pow(rates.beta1, t) : 1.0;
  const double correction2 = corrects ? 1.0 - std::pow(config.beta2, t) : 1.0;
  const double decoupled = config.adam_w_mode ? rates.weight_decay : 0.0;
  return AdamOp{{.gradient_scale = static_cast<float>(rates.gradient_scale),
                 .decay_factor = static_cast<float>(1.0 - rates.lr * decoupled),
                 .l2 = static_cast<float>(config.adam_w_mode ? 0.0 : rates.weight_decay),
                 .one_minus_beta1 = static_cast<float>(1.0 - rates.beta1),
                 .beta2 = static_cast<float>(config.beta2),
                 .one_minus_beta2 = static_cast<float>(1.0 - config.beta2),
                 .step_size = static_cast<float>(rates.lr / correction1),
                 .inverse_correction2 = static_cast<float>(1.0 / std::sqrt(correction2)),
                 .eps = static_cast<float>(config.eps)}};
}

FlatOp MakeOp(const config::SgdConfig& config, const SliceRates& rates) {
  const bool first = rates.step == 1;
  const SgdCoefficients c{
      .gradient_scale = static_cast<float>(rates.gradient_scale),
      .l2 = static_cast<float>(rates.weight_decay),
      .momentum = static_cast<float>(rates.beta1),
      .gradient_share = static_cast<float>(first ? 1.0 : 1.0 - config.dampening),
      .direct_share = config.nesterov ? 1.0F : 0.0F,
      .momentum_share = static_cast<float>(config.nesterov ? rates.beta1 : 1.0),
      .lr = static_cast<float>(rates.lr)};
  if (config.momentum == 0.0) return SgdOp{c};
  return SgdMomentumOp{c};
}

FlatOp MakeOp(const config::AdagradConfig& config, const SliceRates& rates) {
  const double elapsed = static_cast<double>(rates.step - 1);
  return AdagradOp{{.gradient_scale = static_cast<float>(rates.gradient_scale),
                    .l2 = static_cast<float>(rates.weight_decay),
                    .lr = static_cast<float>(rates.lr / (1.0 + elapsed * config.lr_decay)),
                    .eps = static_cast<float>(config.eps)}};
}

FlatOp MakeOp(const config::LionConfig& config, const SliceRates& rates) {
  // 1 - beta is rounded as DeepSpeed rounds it, in fp32: for 0.999 that is five digits.
  return LionOp{{.gradient_scale = static_cast<float>(rates.gradient_scale),
                 .decay_factor = static_cast<float>(1.0 - rates.lr * rates.weight_decay),
                 .one_minus_beta1 = 1.0F - static_cast<float>(rates.beta1),
                 .one_minus_beta2 = 1.0F - static_cast<float>(config.beta2),
                 .lr = static_cast<float>(rates.lr)}};
}

}  // namespace ds::optim
