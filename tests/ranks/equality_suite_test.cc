// Every way to train, as a config and a command line choose it, gives the numbers of the plain run:
// stage, precision, accumulation, recompute and what stage 3 gathers ahead or keeps, all with all.
//
// Of equal bits (README of runtime/zero): recompute and residency settings always; the stages with
// one micro-batch a step; 0 and 1, and 2 and 3, with several. Elsewhere sums have another order.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>

#include "runtime/comm/communicator.h"
#include "tests/ranks/observed_backend.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using Kind = config::RecomputeChoice::Kind;

constexpr int kSuiteSteps = 3;

struct BudgetSetting {
  const char* name;
  config::ZeroConfig zero;
};

// In elements, of which a layer's two buffers have 256 with padding, the embedding's 128 and the
// head's 128. The largest parameter of a layer has 25, the embedding 55.
std::vector<BudgetSetting> ListSettings(int stage) {
  if (stage < 3) return {{"default", {}}};
  return {{"default", {}},
          {"prefetch", {.prefetch_bucket_size = 2000, .max_live_parameters = 3000}},
          {"reuse", {.max_reuse_distance = 1100}},
          {"persistent", {.param_persistence_threshold = 30, .model_persistence_threshold = 600}}};
}

const std::pair<const char*, config::RecomputeChoice> kRecompute[] = {
    {"none", {}},
    {"full", {.kind = Kind::kBlocks}},
    {"every 2", {.kind = Kind::kBlocks, .every = 2}}};

struct Trained {
  std::vector<StepResult> steps;
  std::map<std::string, at::Tensor> parameters;
};

Trained TrainAsConfigured(const TinyRun& run, int ranks) {
  Trained outcome;
  testing::RunRanks(ranks, [&](comm::Communicator& world) {
    const auto engine = MakeTinyEngine(run, world);
    auto steps = TrainTiny(*engine, run, kSuiteSteps);
    auto parameters = ExportAll(*engine);
    if (world.rank() == 0) outcome = {std::move(steps), std::move(parameters)};
  });
  return outcome;
}

void ExpectTheBitsOf(const Trained& expected, const Trained& ours) {
  ASSERT_EQ(ours.steps.size(), expected.steps.size());
  for (std::size_t i = 0; i < expected.steps.size(); ++i) {
    EXPECT_EQ(ours.steps[i].loss, expected.steps[i].loss) << i;
    EXPECT_EQ(ours.steps[i].grad_norm, expected.steps[i].grad_norm) << i;
  }
  ASSERT_EQ(ours.parameters.size(), expected.parameters.size());
  for (const auto& [name, value] : expected.parameters) {
    EXPECT_TRUE(ours.parameters.at(name).equal(value)) << name;
  }
}

void ExpectTheLossesOf(const Trained& expected, const Trained& ours, double tolerance) {
  ASSERT_EQ(ours.steps.size(), expected.steps.size());
  for (std::size_t i = 0; i < expected.steps.size(); ++i) {
    EXPECT_NEAR(ours.steps[i].loss, expected.steps[i].loss, tolerance) << i;
  }
}

class EqualitySuite : public ::testing::TestWithParam<std::tuple<Precision, int>> {
 protected:
  TinyRun Run(int stage) const {
    const auto& [precision, accumulation] = GetParam();
    return {.stage = stage, .accumulation = accumulation, .precision = precision};
  }
  bool is_fp32() const { return std::get<0>(GetParam()) == Precision::kFp32; }
  int accumulation() const { return std::get<1>(GetParam()); }
  // In bf16 a gradient is rounded behind every addition, by up to 1/512 of it.
  double tolerance() const { return is_fp32() ? 1e-5 : 5e-3; }
};

TEST_P(EqualitySuite, TrainsToThePlainRunsNumbers) {
  TinyRun plain = Run(/*stage=*/0);
  plain.accumulation = 1;
  const Trained alone = TrainAsConfigured(plain, /*ranks=*/1);
  std::optional<Trained> expected;  // the bits of this stage, and of those before it
  for (int stage = 0; stage <= 3; ++stage) {
    const bool adds_in_another_order = stage == 2 && accumulation() > 1;
    if (adds_in_another_order) expected.reset();
    for (const BudgetSetting& setting : ListSettings(stage)) {
      for (const auto& [recompute_name, recompute] : kRecompute) {
        SCOPED_TRACE(
            fmt::format("stage {}, {}, recompute {}", stage, setting.name, recompute_name));
        TinyRun run = Run(stage);
        run.zero = setting.zero;
        run.recompute = recompute;
        const Trained ours = TrainAsConfigured(run, /*ranks=*/2);
        ExpectTheLossesOf(alone, ours, tolerance());
        if (!expected) expected = ours;
        ExpectTheBitsOf(*expected, ours);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, EqualitySuite,
                         ::testing::Combine(::testing::Values(Precision::kFp32, Precision::kBf16),
                                            ::testing::Values(1, 2)),
                         [](const auto& info) {
                           return fmt::format(
                               "{}_of{}",
                               std::get<0>(info.param) == Precision::kFp32 ? "fp32" : "bf16",
                               std::get<1>(info.param));
                         });

// A suite whose settings did nothing would pass, too.
TEST(EqualitySuiteSettings, GatherLessOftenThanThePlan) {
  std::map<std::string, std::int64_t> gathers;
  for (const BudgetSetting& setting : ListSettings(/*stage=*/3)) {
    testing::RunRanks(2, [&](comm::Communicator& host) {
      std::int64_t count = 0;
      comm::Communicator world(c10::make_intrusive<ObservedBackend>(
          host.backend(), [&](c10d::OpType op, const at::Tensor& tensor) {
            const bool is_parameters = at::isFloatingType(tensor.scalar_type());
            if (op == c10d::OpType::_ALLGATHER_BASE && is_parameters) ++count;
          }));
      const TinyRun run{.stage = 3, .zero = setting.zero};
      const auto engine = MakeTinyEngine(run, world);
      TrainTiny(*engine, run, /*steps=*/2);
      if (world.rank() == 0) gathers[setting.name] = count;
    });
  }
  EXPECT_GT(gathers["default"], 0);
  EXPECT_LT(gathers["prefetch"], gathers["default"]);
  EXPECT_LT(gathers["reuse"], gathers["default"]);
  EXPECT_LT(gathers["persistent"], gathers["default"]);
}

}  // namespace
}  // namespace ds::tests
