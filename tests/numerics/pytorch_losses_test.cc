// Twenty steps of training give the losses that PyTorch gives in a single process, for every world
// size and ZeRO stage, and the stages give the same bits as one another.

#include <gtest/gtest.h>

#include "tests/numerics/golden_run.h"

namespace ds::numerics {
namespace {

class PyTorchLosses : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  GoldenRun RunOf(int stage) const {
    const auto& [family, world_size] = GetParam();
    return {.family = family, .world_size = world_size, .stage = stage};
  }
};

void ExpectGolden(const GoldenRunResult& result, const nlohmann::json& golden) {
  ASSERT_EQ(result.steps.size(), golden["losses"].size());
  for (std::size_t i = 0; i < result.steps.size(); ++i) {
    EXPECT_NEAR(result.steps[i].loss, golden["losses"][i].get<double>(), 5e-5) << "step " << i + 1;
    const double norm = golden["grad_norms"][i];
    EXPECT_NEAR(result.steps[i].grad_norm, norm, 2e-4 * norm) << "step " << i + 1;
  }
}

void ExpectSameBits(const GoldenRunResult& a, const GoldenRunResult& b) {
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (const auto& [name, value] : a.parameters) {
    EXPECT_TRUE(value.equal(b.parameters.at(name))) << name;
  }
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss) << "step " << i + 1;
    EXPECT_EQ(a.steps[i].grad_norm, b.steps[i].grad_norm) << "step " << i + 1;
  }
}

TEST_P(PyTorchLosses, EveryStageHasThemAndTheSameBits) {
  const auto& [family, world_size] = GetParam();
  const nlohmann::json golden = GoldenOf(family, 8);
  const GoldenRunResult unsharded = Train(RunOf(0));
  ExpectGolden(unsharded, golden);
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    const GoldenRunResult sharded = Train(RunOf(stage));
    ExpectGolden(sharded, golden);
    ExpectSameBits(sharded, unsharded);
  }
}

// Stages 0 and 1 add micro-batches before ranks, 2 and 3 ranks before micro-batches: two orders of
// addition, hence two sets of bits.
TEST_P(PyTorchLosses, AccumulationHasThemToo) {
  const auto& [family, world_size] = GetParam();
  const nlohmann::json golden = GoldenOf(family, 16);
  std::vector<GoldenRunResult> results;
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    GoldenRun run = RunOf(stage);
    run.global_batch = 16;
    run.accumulation = world_size == 1 ? 4 : 2;
    results.push_back(Train(run));
    ExpectGolden(results.back(), golden);
  }
  ExpectSameBits(results[1], results[0]);
  ExpectSameBits(results[3], results[2]);
  // Losses, not parameters: the gradient of a key's bias is zero but for rounding, and Adam scales
  // that rounding up to whole steps.
  for (std::size_t i = 0; i < results[0].steps.size(); ++i) {
    EXPECT_NEAR(results[2].steps[i].loss, results[0].steps[i].loss, 1e-5) << "step " << i + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PyTorchLosses,
                         ::testing::Combine(::testing::Values("gpt2", "llama"),
                                            ::testing::Values(1, 2, 4)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_on_" +
                                  std::to_string(std::get<1>(info.param));
                         });

class FamilyLosses : public ::testing::TestWithParam<const char*> {};

TEST_P(FamilyLosses, ShardedAreThoseOfPyTorch) {
  const std::string family = std::string("families/") + GetParam();
  const GoldenRun run{.family = family, .world_size = 2, .stage = 3};
  ExpectGolden(Train(run), GoldenOf(family, 8));
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyLosses,
                         ::testing::Values("bloom", "deepseek_v2", "deepseek_v2_lite", "falcon_40b",
                                           "falcon_7b", "gemma", "gemma2", "gemma3", "gpt_neox",
                                           "mistral", "mixtral", "olmo2", "opt", "phi3", "qwen2",
                                           "qwen2_moe_some", "qwen3", "qwen3_moe", "smollm3"),
                         [](const auto& info) { return std::string(info.param); });

class ExpertLosses : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string family_ = std::string("families/") + GetParam();
};

// Experts of a shard lie anywhere in it, and some get no token of a rank.
TEST_P(ExpertLosses, EveryStageHasTheSameBits) {
  GoldenRun run{.family = family_, .world_size = 4};
  const GoldenRunResult unsharded = Train(run);
  for (run.stage = 1; run.stage <= 3; ++run.stage) {
    SCOPED_TRACE("stage " + std::to_string(run.stage));
    ExpectSameBits(Train(run), unsharded);
  }
}

// Of one rank, for each judges the balance of what it has.
TEST_P(ExpertLosses, WithTheirBalanceTheyAreThoseOfPyTorch) {
  ExpectGolden(Train(GoldenRun{.family = family_}), GoldenOf(family_, 8));
}

INSTANTIATE_TEST_SUITE_P(Families, ExpertLosses, ::testing::Values("mixtral_balanced", "qwen2_moe"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ds::numerics
