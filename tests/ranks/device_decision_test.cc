// A step that is clipped or skipped where its parameters are, before the host knows of it, is the
// step that the host decides: to the bit, on CPU ranks, whose device the host is.

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

constexpr int kDecidedSteps = 4;
constexpr int kPoisoned = 1;  // the second step's gradients, of a run that may skip it

struct DecidedRun {
  std::vector<StepResult> steps;
  std::map<std::string, at::Tensor> parameters;
};

DecidedRun Train(TinyRun run, int world_size, bool decides_on_device) {
  run.decides_on_device = decides_on_device;
  const bool skips = run.precision != Precision::kFp32;
  DecidedRun outcome;
  testing::RunRanks(world_size, [&](comm::Communicator& world) {
    const auto engine = MakeTinyEngine(run, world);
    std::vector<StepResult> steps;
    for (std::int64_t batch = 0; std::ssize(steps) < kDecidedSteps;) {
      const bool poisoned = skips && std::ssize(steps) == kPoisoned;
      const auto next = [&]() -> StatusOr<Bundle> {
        Bundle bundle = TinyBatch(run, world, batch++);
        const double factor = poisoned ? std::numeric_limits<double>::infinity() : 1.0;
        bundle.extras["poison"] = at::full({}, factor, run.dtype());
        return bundle;
      };
      steps.push_back(engine::TrainStep(*engine, next).value());
    }
    auto parameters = ExportAll(*engine);
    if (world.rank() == 0) outcome = {std::move(steps), std::move(parameters)};
  });
  return outcome;
}

void ExpectSame(const DecidedRun& ours, const DecidedRun& expected) {
  for (std::size_t i = 0; i < kDecidedSteps; ++i) {
    SCOPED_TRACE("step " + std::to_string(i + 1));
    EXPECT_EQ(ours.steps[i].skipped, expected.steps[i].skipped);
    EXPECT_EQ(ours.steps[i].non_finite, expected.steps[i].non_finite);
    EXPECT_EQ(ours.steps[i].lr, expected.steps[i].lr);
    EXPECT_EQ(ours.steps[i].tokens, expected.steps[i].tokens);
    if (expected.steps[i].skipped) continue;  // NaN is no number's equal
    EXPECT_EQ(ours.steps[i].loss, expected.steps[i].loss);
    EXPECT_EQ(ours.steps[i].grad_norm, expected.steps[i].grad_norm);
  }
  for (const auto& [name, value] : expected.parameters) {
    EXPECT_TRUE(ours.parameters.at(name).equal(value)) << name;
  }
}

class DeviceDecision : public ::testing::TestWithParam<int> {};

TEST_P(DeviceDecision, IsTheHosts) {
  for (const Precision precision :
       {Precision::kFp32, Precision::kBf16, Precision::kBf16Throughout}) {
    for (const double clipping : {0.05, 0.0}) {
      for (const int ranks : {1, 2}) {
        const TinyRun run{.stage = GetParam(),
                          .accumulation = 2,
                          .gradient_clipping = clipping,
                          .precision = precision};
        const DecidedRun expected = Train(run, ranks, /*decides_on_device=*/false);
        EXPECT_EQ(expected.steps[kPoisoned].skipped, precision != Precision::kFp32);
        ExpectSame(Train(run, ranks, /*decides_on_device=*/true), expected);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, DeviceDecision, ::testing::Range(0, 4));

// Their updates need the norm on the host, who keeps deciding.
TEST(DeviceDecision, LeavesOtherOptimizersToTheHost) {
  const TinyRun run{.stage = 1, .optimizer = config::LambConfig{}};
  ExpectSame(Train(run, 2, /*decides_on_device=*/true), Train(run, 2, /*decides_on_device=*/false));
}

TEST(DeviceDecision, EndsTheRunWithTheParametersOfTheStepBefore) {
  testing::RunRanks(2, [](comm::Communicator& world) {
    const TinyRun run{.stage = 2, .decides_on_device = true};
    const auto engine = MakeTinyEngine(run, world);
    TrainTiny(*engine, run, 1);
    const auto before = ExportAll(*engine);
    const auto result = engine::TrainStep(*engine, [&]() -> StatusOr<Bundle> {
      Bundle bundle = TinyBatch(run, world, 1);
      const double nan = std::numeric_limits<double>::quiet_NaN();
      bundle.extras["poison"] = at::full({}, world.rank() == 1 ? nan : 1.0, at::kFloat);
      return bundle;
    });
    EXPECT_NE(result.status().message().find("first on rank 1, micro-step 1) is not finite"),
              std::string::npos)
        << result.status().message();
    const auto after = ExportAll(*engine);
    for (const auto& [name, value] : before) EXPECT_TRUE(value.equal(after.at(name))) << name;
  });
}

}  // namespace
}  // namespace ds::tests
