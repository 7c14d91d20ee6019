#pragma once

// Elementwise implements the optimizers that update with one op (kernels/update_ops.h): Adam, SGD,
// Adagrad and Lion. Config is an alternative of config::OptimizerAlgorithm that MakeOp accepts.

#include <span>
#include <string_view>
#include <variant>

#include "runtime/config/optimizer.h"
#include "runtime/optim/kernels/flat_update.h"
#include "runtime/optim/optimizer.h"

namespace ds::optim {

template <typename Config>
class Elementwise : public Optimizer {
 public:
  Elementwise(const Config& config, double weight_decay)
      : Optimizer({.beta1 = Beta1Of(config), .weight_decay = weight_decay}), config_(config) {}

  std::string_view name() const override {
    return std::visit([](const auto& op) { return std::string_view(op.kName); },
                      MakeOp(config_, SliceRates()));
  }
  std::span<const std::string_view> state_names(const ParameterGroup&) const override {
    return std::visit(
        [](const auto& op) -> std::span<const std::string_view> { return op.kStates; },
        MakeOp(config_, SliceRates()));
  }
  Reach reach(const ParameterGroup&) const override { return config::ReachOf(config_); }
  bool takes_decision() const override { return true; }
  void ApplyRates(const SliceRates& rates, const OptimizerSlice& slice) override {
    UpdateSlice(MakeOp(config_, rates), slice, rates.decision);
  }

 private:
  static double Beta1Of(const Config& config) {
    if constexpr (requires { config.beta1; }) return config.beta1;
    if constexpr (requires { config.momentum; }) return config.momentum;
    return 0.0;
  }

  Config config_;
};

}  // namespace ds::optim
