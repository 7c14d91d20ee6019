// The four ZeRO stages train the same model: the same bits where they add in the same order.

#include <gtest/gtest.h>

#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

constexpr int kStagedSteps = 3;

struct StagedRun {
  std::vector<StepResult> steps;
  std::map<std::string, at::Tensor> parameters;
};

StagedRun Train(const TinyRun& run, int world_size) {
  StagedRun outcome;
  testing::RunRanks(world_size, [&](comm::Communicator& world) {
    const auto engine = MakeTinyEngine(run, world);
    auto steps = TrainTiny(*engine, run, kStagedSteps);
    auto parameters = ExportAll(*engine);
    if (world.rank() == 0) outcome = {std::move(steps), std::move(parameters)};
  });
  return outcome;
}

void ExpectSameBits(const StagedRun& a, const StagedRun& b) {
  for (const auto& [name, value] : a.parameters) {
    EXPECT_TRUE(value.equal(b.parameters.at(name))) << name;
  }
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
    EXPECT_EQ(a.steps[i].grad_norm, b.steps[i].grad_norm);
  }
}

void ExpectClose(const StagedRun& a, const StagedRun& b, double tolerance) {
  for (const auto& [name, value] : a.parameters) {
    EXPECT_TRUE(value.allclose(b.parameters.at(name), 0, tolerance)) << name;
  }
}

class ZeroStages : public ::testing::TestWithParam<int> {};

TEST_P(ZeroStages, EqualStageZeroBitForBit) {
  const StagedRun expected = Train({.stage = 0}, GetParam());
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    ExpectSameBits(Train({.stage = stage}, GetParam()), expected);
  }
}

TEST_P(ZeroStages, EqualStageZeroBitForBitWithoutClippingAndInBf16) {
  for (const Precision precision :
       {Precision::kFp32, Precision::kBf16, Precision::kBf16State, Precision::kBf16Throughout}) {
    const TinyRun run{.gradient_clipping = 0.0, .precision = precision};
    const StagedRun expected = Train(run, GetParam());
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE("stage " + std::to_string(stage) +
                   (precision == Precision::kFp32 ? "" : " in bf16"));
      TinyRun sharded = run;
      sharded.stage = stage;
      ExpectSameBits(Train(sharded, GetParam()), expected);
    }
  }
}

// Ranges of one buffer, of which a rank may have a part, all or nothing.
TEST_P(ZeroStages, EqualStageZeroBitForBitWithParameterGroups) {
  const std::vector<config::OptimizerAlgorithm> algorithms = {
      config::AdamConfig{}, config::LambConfig{}, config::MuonConfig{}};
  for (const config::OptimizerAlgorithm& algorithm : algorithms) {
    TinyRun run{.optimizer = algorithm, .groups = optim::NoDecayOnNormsAndBiases};
    const StagedRun expected = Train(run, GetParam());
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE("stage " + std::to_string(stage) + ", optimizer " +
                   std::to_string(algorithm.index()));
      run.stage = stage;
      ExpectSameBits(Train(run, GetParam()), expected);
    }
  }
}

// What they have no effect on does not notice: the update of a parameter is that of its own
// values. Only the norm's sum is cut elsewhere.
TEST_P(ZeroStages, ParameterGroupsOfEqualRatesMatchOneGroup) {
  const auto two_groups = [](int, const std::string& name, const at::Tensor&) {
    return optim::ParameterGroup{.muon = name.ends_with('b')};  // which Adam does not look at
  };
  for (const int stage : {0, 3}) {
    const StagedRun one = Train({.stage = stage, .gradient_clipping = 0.0}, GetParam());
    const StagedRun two =
        Train({.stage = stage, .gradient_clipping = 0.0, .groups = two_groups}, GetParam());
    for (const auto& [name, value] : one.parameters) {
      EXPECT_TRUE(value.equal(two.parameters.at(name))) << name;
    }
    EXPECT_NEAR(one.steps.back().grad_norm, two.steps.back().grad_norm, 1e-7);
  }
}

// Stages 0 and 1 add micro-batches before ranks, 2 and 3 ranks before micro-batches.
TEST_P(ZeroStages, AccumulateInOneOfTwoOrders) {
  const StagedRun late = Train({.stage = 0, .accumulation = 2}, GetParam());
  ExpectSameBits(Train({.stage = 1, .accumulation = 2}, GetParam()), late);
  const StagedRun early = Train({.stage = 2, .accumulation = 2}, GetParam());
  ExpectSameBits(Train({.stage = 3, .accumulation = 2}, GetParam()), early);
  ExpectClose(early, late, 1e-6);
}

TEST_P(ZeroStages, MatchOneRank) {
  const StagedRun alone = Train({}, 1);
  ExpectClose(Train({.stage = 3}, GetParam()), alone, 1e-5);
  ExpectClose(Train({.stage = 3, .accumulation = 2}, GetParam()), alone, 1e-5);
}

TEST_P(ZeroStages, ReportTheStepAsItWas) {
  const StagedRun outcome = Train({.stage = 2, .accumulation = 2}, GetParam());
  const StepResult& last = outcome.steps.back();
  EXPECT_TRUE(last.boundary);
  EXPECT_FALSE(last.skipped);
  EXPECT_EQ(last.step, kStagedSteps);
  EXPECT_EQ(last.samples, 24);
  EXPECT_EQ(last.tokens, 24 * 4);
  EXPECT_EQ(last.lr, 0.05);
  EXPECT_GT(last.grad_norm, 0.05) << "the norm before clipping";
  EXPECT_LT(last.loss, outcome.steps.front().loss);
}

INSTANTIATE_TEST_SUITE_P(Worlds, ZeroStages, ::testing::Values(1, 2, 3, 4));

TEST(ZeroStages, LeaveFrozenParametersAsTheyWere) {
  for (const int stage : {0, 3}) {
    std::map<std::string, at::Tensor> before, after;
    testing::RunRanks(2, [&](comm::Communicator& world) {
      const TinyRun run{.stage = stage};
      const auto engine = MakeTinyEngine(run, world);
      auto first = ExportAll(*engine);
      TrainTiny(*engine, run, 1);
      auto second = ExportAll(*engine);
      if (world.rank() == 0) std::tie(before, after) = std::pair(first, second);
    });
    EXPECT_TRUE(after.at("layer.1.scale").equal(before.at("layer.1.scale")));
    EXPECT_FALSE(after.at("layer.1.w").equal(before.at("layer.1.w")));
    // Without a gradient there is weight decay alone: 1 - lr * weight_decay.
    EXPECT_TRUE(after.at("layer.1.unused").allclose(before.at("layer.1.unused") * 0.995, 1e-6, 0));
  }
}

TEST(ZeroStages, TheFirstValuesDoNotDependOnTheWorld) {
  std::vector<std::map<std::string, at::Tensor>> values;
  for (const auto& [stage, world_size] : {std::pair{0, 1}, {3, 4}}) {
    testing::RunRanks(world_size, [&, stage = stage](comm::Communicator& world) {
      const auto engine = MakeTinyEngine({.stage = stage}, world);
      auto all = ExportAll(*engine);
      if (world.rank() == 0) values.push_back(std::move(all));
    });
  }
  ASSERT_EQ(values[0].size(), 14U);
  for (const auto& [name, value] : values[0]) EXPECT_TRUE(value.equal(values[1].at(name))) << name;
}

}  // namespace
}  // namespace ds::tests
