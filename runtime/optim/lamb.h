#pragma once

// LAMB as DeepSpeed's FusedLamb computes it. With gradient g, step t counted from 1:
//   m = m + (1 - beta1) (g - m)              v = beta2 v + (1 - beta2) g^2
//   u = m / (sqrt(v) + eps) + weight_decay * p          (m / sqrt(v + eps) with eps_inside_sqrt)
//   p -= lr * sqrt(1 - beta2^t) / (1 - beta1^t) * ratio * u
// where ratio is |p| / |u| of the whole parameter, clipped to [min_coeff, max_coeff], and 1 when
// either norm is 0. Without bias_correction both corrections are 1.

#include <vector>

#include "runtime/config/optimizer.h"
#include "runtime/optim/kernels/direction.h"
#include "runtime/optim/optimizer.h"

namespace ds::optim {

class Lamb : public Optimizer {
 public:
  Lamb(const config::LambConfig& config, double weight_decay)
      : Optimizer({.beta1 = config.beta1, .weight_decay = weight_decay}), config_(config) {}

  std::string_view name() const override { return "Lamb"; }
  std::span<const std::string_view> state_names(const ParameterGroup& group) const override;
  // Updates the state and learns each parameter's ratio: one all-gather of two numbers a parameter.
  void Begin(const Update& update, const RankParts& all) override;
  void ApplyRates(const PartRates& rates, const Part& part) override;

 private:
  DirectionCoefficients MakeCoefficients(const PartRates& rates) const;

  config::LambConfig config_;
  std::vector<double> ratios_;  // of this update, by parameter
};

}  // namespace ds::optim
