// Adapters beside a frozen model, and a model of which a part is frozen, train to the plain run's
// numbers, whatever stage, precision, accumulation, recompute and gathering ahead are: bit for bit
// where the order of sums is the same (equality_suite_test.cc).

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/ranks/decoder_run.h"

namespace ds::tests {
namespace {

using Kind = config::RecomputeChoice::Kind;

struct Part {
  const char* name;
  std::int64_t lora_rank;
  std::vector<std::string> freeze;
};

// All but adapters; the front of the model; every matrix of the layers.
const Part kParts[] = {{"adapters", 4, {}},
                       {"front", 0, {"*embed_tokens*", "model.layers.0.*"}},
                       {"matrices", 0, {"model.*_proj.weight"}}};

class FrozenSuite : public ::testing::TestWithParam<std::tuple<bool, std::int64_t>> {
 protected:
  DecoderRun Run(const Part& part, int stage) const {
    return {.model = kLlamaDecoder,
            .stage = stage,
            .accumulation = std::get<1>(GetParam()),
            .bf16 = std::get<0>(GetParam()),
            .lora_rank = part.lora_rank,
            .freeze = part.freeze};
  }
  bool bf16() const { return std::get<0>(GetParam()); }
};

void ExpectTheBitsOf(const DecoderOutcome& expected, const DecoderOutcome& ours) {
  for (std::size_t i = 0; i < expected.steps.size(); ++i) {
    EXPECT_EQ(ours.steps[i].loss, expected.steps[i].loss) << i;
    EXPECT_EQ(ours.steps[i].grad_norm, expected.steps[i].grad_norm) << i;
  }
  for (const auto& [name, value] : expected.parameters) {
    EXPECT_TRUE(ours.parameters.at(name).equal(value)) << name;
  }
}

TEST_P(FrozenSuite, TrainsToThePlainRunsNumbers) {
  for (const Part& part : kParts) {
    const DecoderOutcome alone = RunDecoder(Run(part, /*stage=*/0), 1, kTrainedSteps);
    std::optional<DecoderOutcome> expected;  // the bits of this stage, and of those before it
    for (int stage = 0; stage <= 3; ++stage) {
      if (stage == 2 && std::get<1>(GetParam()) > 1) expected.reset();
      for (const bool ahead : {false, true}) {
        if (ahead && stage < 3) continue;
        for (const Kind recompute : {Kind::kNone, Kind::kBlocks, Kind::kAttention}) {
          SCOPED_TRACE(fmt::format("{}, stage {}, {}, recompute {}", part.name, stage,
                                   ahead ? "ahead" : "in time", static_cast<int>(recompute)));
          DecoderRun run = Run(part, stage);
          run.recompute = {.kind = recompute};
          run.gathers_ahead = ahead;
          const DecoderOutcome ours = RunDecoder(run, 2, kTrainedSteps);
          for (std::size_t i = 0; i < alone.steps.size(); ++i) {
            EXPECT_NEAR(ours.steps[i].loss, alone.steps[i].loss, bf16() ? 1e-2 : 1e-5) << i;
          }
          if (!expected) expected = ours;
          ExpectTheBitsOf(*expected, ours);
        }
      }
    }
    EXPECT_LT(alone.steps.back().loss, alone.steps.front().loss) << part.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, FrozenSuite,
                         ::testing::Combine(::testing::Values(false, true),
                                            ::testing::Values(1, 2)),
                         [](const auto& info) {
                           return fmt::format("{}_of{}", std::get<0>(info.param) ? "bf16" : "fp32",
                                              std::get<1>(info.param));
                         });

}  // namespace
}  // namespace ds::tests
