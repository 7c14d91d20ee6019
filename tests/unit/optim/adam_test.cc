#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <vector>

#include "runtime/optim/elementwise.h"
#include "tests/unit/optim/optimizer_slices.h"

namespace ds::optim {
namespace {

using Adam = Elementwise<config::AdamConfig>;

constexpr double kRate = 1e-2;
constexpr double kDecay = 0.1;
constexpr config::AdamConfig kConfig{.beta2 = 0.95};

TEST(Adam, MatchesPyTorchsFusedAdamWAndAdamOverSeveralSteps) {
  for (const bool decoupled : {true, false}) {
    config::AdamConfig config = kConfig;
    config.adam_w_mode = decoupled;
    Adam adam(config, kDecay);
    const OptimizerSlice ours = RandomPart(adam, 5000);
    const OptimizerSlice theirs = CopyOf(ours);
    for (int step = 1; step <= 5; ++step) {
      adam.Apply({.lr = kRate, .step = step}, ours);
      const std::vector<at::Tensor> p{theirs.parameter}, g{theirs.gradient.clone()},
          m{theirs.state[0]}, v{theirs.state[1]}, steps{at::full({}, static_cast<double>(step))};
      const auto update = [&](auto apply) {
        apply(p, g, m, v, std::vector<at::Tensor>{}, steps, kRate, config.beta1, config.beta2,
              kDecay, config.eps, false, false);
      };
      if (decoupled) {
        update([](auto&&... args) { at::_fused_adamw_(args...); });
      } else {
        update([](auto&&... args) { at::_fused_adam_(args...); });
      }
    }
    // A unit in the last place of the largest of 5000 normals for each step: 5 * 4.8e-7.
    EXPECT_LT(Distance(ours.parameter, theirs.parameter), 2.4e-6) << "adam_w_mode " << decoupled;
    EXPECT_LT(Distance(ours.state[0], theirs.state[0]), 1e-6);
    EXPECT_LT(Distance(ours.state[1], theirs.state[1]), 1e-6);
  }
}

TEST(Adam, WithoutBiasCorrectionTheFirstStepUsesTheRawMoments) {
  config::AdamConfig config = kConfig;
  config.bias_correction = false;
  const OptimizerSlice slice{.parameter = at::zeros({64}),
                             .gradient = at::full({64}, 2.0),
                             .state = {at::zeros({64}), at::zeros({64})}};
  Adam(config, /*weight_decay=*/0.0).Apply({.lr = 1.0, .step = 1}, slice);
  // m = 0.1 * 2, v = 0.05 * 4: p = -0.2 / sqrt(0.2).
  EXPECT_NEAR(slice.parameter[0].item<double>(), -0.2 / std::sqrt(0.2), 1e-6);
}

TEST(Adam, AScheduleMayReplaceBeta1) {
  config::AdamConfig other = kConfig;
  other.beta1 = 0.7;
  const OptimizerSlice cycled = RandomPart(Adam(other, kDecay), 256);
  const OptimizerSlice configured = CopyOf(cycled);
  Adam(kConfig, kDecay).Apply({.lr = kRate, .step = 4, .beta1 = 0.7}, cycled);
  Adam(other, kDecay).Apply({.lr = kRate, .step = 4}, configured);
  EXPECT_TRUE(SameBits(cycled, configured));
}

}  // namespace
}  // namespace ds::optim
