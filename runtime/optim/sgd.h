#pragma once

// SGD as torch.optim.SGD computes it. With gradient g:
//   g += weight_decay * p
//   m = momentum * m + (1 - dampening) g, in the first update m = g
//   p -= lr * (g + momentum * m) with nesterov, else lr * m; without momentum lr * g

#include "runtime/optim/optimizer.h"

namespace ds::optim {

class Sgd : public Optimizer {
 public:
  explicit Sgd(const config::OptimizerConfig& config) : Optimizer(config, config.momentum) {}

  std::string_view name() const override;
  std::span<const std::string_view> state_names(const ParameterGroup& group) const override;
  void ApplyRates(const Rates& rates, const Part& part) override;
};

}  // namespace ds::optim
