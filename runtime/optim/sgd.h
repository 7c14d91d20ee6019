#pragma once

// SGD as torch.optim.SGD computes it. With gradient g:
//   g += weight_decay * p
//   m = momentum * m + (1 - dampening) g, in the first update m = g
//   p -= lr * (g + momentum * m) with nesterov, else lr * m; without momentum lr * g

#include "runtime/config/optimizer.h"
#include "runtime/optim/optimizer.h"

namespace ds::optim {

class Sgd : public Optimizer {
 public:
  Sgd(const config::SgdConfig& config, double weight_decay)
      : Optimizer({.beta1 = config.momentum, .weight_decay = weight_decay}), config_(config) {}

  std::string_view name() const override;
  std::span<const std::string_view> state_names(const ParameterGroup& group) const override;
  bool is_elementwise() const override { return true; }
  void ApplyRates(const PartRates& rates, const Part& part) override;

 private:
  config::SgdConfig config_;
};

}  // namespace ds::optim
