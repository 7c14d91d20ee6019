#pragma once

// Adam and AdamW.
//
// With gradient g (after scaling by gradient_scale), step t counted from 1:
//   AdamW: p -= lr * weight_decay * p        Adam: g += weight_decay * p
//   m = m + (1 - beta1) (g - m)              v = beta2 v + (1 - beta2) g^2
//   p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
// as PyTorch's fused AdamW computes it (without bias_correction both corrections are 1).

#include "runtime/config/optimizer.h"
#include "runtime/optim/optimizer.h"

namespace ds::optim {

class Adam : public Optimizer {
 public:
  Adam(const config::AdamConfig& config, double weight_decay)
      : Optimizer({.beta1 = config.beta1, .weight_decay = weight_decay}), config_(config) {}

  // Adam's state is AdamW's.
  std::string_view name() const override { return "Adam"; }
  std::span<const std::string_view> state_names(const ParameterGroup& group) const override;
  bool is_elementwise() const override { return true; }
  void ApplyRates(const PartRates& rates, const Part& part) override;

 private:
  config::AdamConfig config_;
};

}  // namespace ds::optim
