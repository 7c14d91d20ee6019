#pragma once

// Adagrad as torch.optim.Adagrad computes it. With gradient g, step t counted from 1:
//   g += weight_decay * p
//   s += g^2
//   p -= lr / (1 + (t - 1) lr_decay) * g / (sqrt(s) + eps)

#include "runtime/config/optimizer.h"
#include "runtime/optim/optimizer.h"

namespace ds::optim {

class Adagrad : public Optimizer {
 public:
  Adagrad(const config::AdagradConfig& config, double weight_decay)
      : Optimizer({.weight_decay = weight_decay}), config_(config) {}

  std::string_view name() const override { return "Adagrad"; }
  std::span<const std::string_view> state_names(const ParameterGroup& group) const override;
  bool is_elementwise() const override { return true; }
  void ApplyRates(const PartRates& rates, const Part& part) override;

 private:
  config::AdagradConfig config_;
};

}  // namespace ds::optim
