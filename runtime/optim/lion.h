#pragma once

// Lion. With gradient g:
//   p -= lr * weight_decay * p + lr * sign(beta1 m + (1 - beta1) g)
//   m = beta2 m + (1 - beta2) g
// The sign of 0 is 0, as in the paper. DeepSpeed's kernels move such elements too: by lr in the
// direction of the sign bit on the CPU, always upwards on CUDA.

#include "runtime/config/optimizer.h"
#include "runtime/optim/optimizer.h"

namespace ds::optim {

class Lion : public Optimizer {
 public:
  Lion(const config::LionConfig& config, double weight_decay)
      : Optimizer({.beta1 = config.beta1, .weight_decay = weight_decay}), config_(config) {}

  std::string_view name() const override { return "Lion"; }
  std::span<const std::string_view> state_names(const ParameterGroup& group) const override;
  bool is_elementwise() const override { return true; }
  void ApplyRates(const PartRates& rates, const Part& part) override;

 private:
  config::LionConfig config_;
};

}  // namespace ds::optim
