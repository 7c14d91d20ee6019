#include "runtime/optim/adam.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <vector>

namespace ds::optim {
namespace {

config::OptimizerConfig Options(double weight_decay = 0.1) {
  return {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = weight_decay};
}

AdamViews RandomViews(std::int64_t count) {
  return {.parameter = at::randn({count}),
          .gradient = at::randn({count}),
          .exp_avg = at::randn({count}).mul_(0.1),
          .exp_avg_sq = at::rand({count}).mul_(0.1)};
}

AdamViews CopyOf(const AdamViews& views) {
  return {.parameter = views.parameter.clone(),
          .gradient = views.gradient.clone(),
          .exp_avg = views.exp_avg.clone(),
          .exp_avg_sq = views.exp_avg_sq.clone()};
}

double Distance(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

TEST(Adam, MatchesPyTorchsFusedAdamWAndAdamOverSeveralSteps) {
  for (const bool decoupled : {true, false}) {
    config::OptimizerConfig config = Options();
    config.adam_w_mode = decoupled;
    AdamViews ours = RandomViews(5000);
    AdamViews theirs = CopyOf(ours);
    for (int step = 1; step <= 5; ++step) {
      ApplyAdam(config, {.lr = config.lr, .step = step}, ours);
      const std::vector<at::Tensor> p{theirs.parameter}, g{theirs.gradient.clone()},
          m{theirs.exp_avg}, v{theirs.exp_avg_sq}, steps{at::full({}, static_cast<double>(step))};
      const auto update = [&](auto apply) {
        apply(p, g, m, v, std::vector<at::Tensor>{}, steps, config.lr, config.beta1, config.beta2,
              config.weight_decay, config.eps, false, false);
      };
      if (decoupled) {
        update([](auto&&... args) { at::_fused_adamw_(args...); });
      } else {
        update([](auto&&... args) { at::_fused_adam_(args...); });
      }
    }
    EXPECT_LT(Distance(ours.parameter, theirs.parameter), 1e-6) << "adam_w_mode " << decoupled;
    EXPECT_LT(Distance(ours.exp_avg, theirs.exp_avg), 1e-6);
    EXPECT_LT(Distance(ours.exp_avg_sq, theirs.exp_avg_sq), 1e-6);
  }
}

TEST(Adam, ComputesTheSameBitsWhereverTheViewsAreCut) {
  AdamViews whole = RandomViews(64 * 40);
  AdamViews parts = CopyOf(whole);
  ApplyAdam(Options(), {.lr = 1e-2, .gradient_scale = 0.3, .step = 3}, whole);
  for (const auto& [start, count] : {std::pair{0, 64 * 7}, {64 * 7, 64}, {64 * 8, 64 * 32}}) {
    ApplyAdam(Options(), {.lr = 1e-2, .gradient_scale = 0.3, .step = 3},
              {.parameter = parts.parameter.narrow(0, start, count),
               .gradient = parts.gradient.narrow(0, start, count),
               .exp_avg = parts.exp_avg.narrow(0, start, count),
               .exp_avg_sq = parts.exp_avg_sq.narrow(0, start, count)});
  }
  EXPECT_TRUE(whole.parameter.equal(parts.parameter));
  EXPECT_TRUE(whole.exp_avg_sq.equal(parts.exp_avg_sq));
}

TEST(Adam, ScalesTheGradientWithoutChangingIt) {
  AdamViews scaled = RandomViews(256);
  AdamViews plain = CopyOf(scaled);
  plain.gradient.mul_(0.25);
  const at::Tensor before = scaled.gradient.clone();
  ApplyAdam(Options(), {.lr = 1e-2, .gradient_scale = 0.25, .step = 1}, scaled);
  ApplyAdam(Options(), {.lr = 1e-2, .step = 1}, plain);
  EXPECT_TRUE(scaled.parameter.equal(plain.parameter));
  EXPECT_TRUE(scaled.gradient.equal(before));
}

TEST(Adam, WithoutBiasCorrectionTheFirstStepUsesTheRawMoments) {
  config::OptimizerConfig config = Options(/*weight_decay=*/0.0);
  config.bias_correction = false;
  const AdamViews views{.parameter = at::zeros({64}),
                        .gradient = at::full({64}, 2.0),
                        .exp_avg = at::zeros({64}),
                        .exp_avg_sq = at::zeros({64})};
  ApplyAdam(config, {.lr = 1.0, .step = 1}, views);
  // m = 0.1 * 2, v = 0.05 * 4: p = -0.2 / sqrt(0.2).
  EXPECT_NEAR(views.parameter[0].item<double>(), -0.2 / std::sqrt(0.2), 1e-6);
}

TEST(Adam, Bf16GradientsAreWidenedAndThePublishedCopyIsTheRoundedParameter) {
  AdamViews narrow = RandomViews(3000);
  narrow.gradient = narrow.gradient.to(at::kBFloat16);
  narrow.published = at::zeros({3000}, at::kBFloat16);
  AdamViews wide = CopyOf(narrow);
  wide.gradient = narrow.gradient.to(at::kFloat);
  ApplyAdam(Options(), {.lr = 1e-2, .step = 1}, narrow);
  ApplyAdam(Options(), {.lr = 1e-2, .step = 1}, wide);
  EXPECT_TRUE(narrow.parameter.equal(wide.parameter));
  EXPECT_TRUE(narrow.published.equal(wide.parameter.to(at::kBFloat16)));
}

}  // namespace
}  // namespace ds::optim
