// bf16 with fp32 master weights converges as fp32 does.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/numerics/golden_run.h"

namespace ds::numerics {
namespace {

double MeanLoss(const GoldenRunResult& result, std::size_t first, std::size_t count) {
  double sum = 0.0;
  for (std::size_t i = first; i < first + count; ++i) sum += result.steps[i].loss;
  return sum / static_cast<double>(count);
}

class Bf16 : public ::testing::TestWithParam<std::string> {};

TEST_P(Bf16, FollowsTheFp32CurveAtEveryStage) {
  GoldenRun run{.family = GetParam(), .world_size = 2, .steps = 60};
  const GoldenRunResult fp32 = Train(run);
  // There is something to follow.
  ASSERT_LT(MeanLoss(fp32, 50, 10), 0.8 * MeanLoss(fp32, 0, 10));
  run.bf16 = true;
  for (const int stage : {0, 1, 2, 3}) {
    run.stage = stage;
    const GoldenRunResult bf16 = Train(run);
    for (std::size_t first = 0; first < 60; first += 10) {
      const double expected = MeanLoss(fp32, first, 10);
      EXPECT_NEAR(MeanLoss(bf16, first, 10), expected, 0.01 * expected)
          << "stage " << stage << ", steps " << first + 1 << " to " << first + 10;
    }
    for (const auto& [name, value] : bf16.parameters) {
      EXPECT_EQ(value.scalar_type(), at::kBFloat16) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Bf16, ::testing::Values("gpt2", "llama"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ds::numerics
