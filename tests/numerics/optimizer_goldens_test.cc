// Thirty steps of every optimizer through the engine give the losses and parameters of the program
// that it is compared with, for each world size and ZeRO stage, and the stages give the same bits
// as one another (goldens/optimizers.json, made by scripts/goldens).

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/numerics/optimizer_run.h"

namespace ds::tests {
namespace {

using Json = nlohmann::json;

const Json& OptimizerRuns() {
  static const Json goldens = ReadGoldens("optimizers.json");
  return goldens;
}

void ExpectSameBits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  for (const auto& [name, value] : a.after.rbegin()->second) {
    EXPECT_TRUE(value.equal(b.after.rbegin()->second.at(name))) << name;
  }
}

// The parameter is the number of the run.
class OptimizerGoldens : public ::testing::TestWithParam<std::size_t> {};

TEST_P(OptimizerGoldens, EveryWorldAndStageFollowsTheReference) {
  const Json& golden = OptimizerRuns()["runs"][GetParam()];
  const Tolerance tolerance = ToleranceOf(golden);
  for (const int world_size : {1, 2}) {
    Outcome unsharded;
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} ranks, stage {}", world_size, stage));
      const Outcome ours = TrainAs(golden, {world_size, stage});
      const auto [first_step, last_step] = ExpectLossesOf(golden, ours, tolerance.loss);
      EXPECT_LE(first_step, tolerance.first_step);
      EXPECT_LE(last_step, tolerance.later_steps);
      fmt::print(
          "{:18} clipping {:3} ranks {} stage {} against {:45} step 1: {:.1e} step {}: {:.1e}\n",
          golden["name"].get<std::string>(), golden["gradient_clipping"].get<double>(), world_size,
          stage, golden["program"].get<std::string>(), first_step, ours.losses.size(), last_step);
      if (stage == 0) {
        unsharded = ours;
      } else {
        ExpectSameBits(ours, unsharded);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, OptimizerGoldens,
                         ::testing::Range<std::size_t>(0, OptimizerRuns()["runs"].size()),
                         [](const auto& info) {
                           const Json& golden = OptimizerRuns()["runs"][info.param];
                           return golden["name"].get<std::string>() +
                                  (golden["gradient_clipping"] == 0.0 ? "" : "_clipped");
                         });

}  // namespace
}  // namespace ds::tests
