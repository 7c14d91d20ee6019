// Thirty steps of the 1-bit optimizers through the engine, on one and two ranks, across the end of
// their warm-up, with and without accumulation, follow DeepSpeed's (goldens/onebit.json, made by
// scripts/goldens).

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/numerics/optimizer_run.h"

namespace ds::tests {
namespace {

using Json = nlohmann::json;

const Json& OneBitRuns() {
  static const Json goldens = ReadGoldens("onebit.json");
  return goldens;
}

// The parameter is the number of the run.
class OneBitGoldens : public ::testing::TestWithParam<std::size_t> {};

TEST_P(OneBitGoldens, FollowTheReference) {
  const Json& golden = OneBitRuns()[GetParam()];
  const int world_size = golden["world_size"];
  const std::string precision = golden["precision"];
  const Tolerance tolerance = ToleranceOf(golden);
  const Outcome ours = TrainAs(golden, {.world_size = world_size, .stage = 0});
  double largest = 0.0;
  for (std::size_t i = 0; i < golden["losses"].size(); ++i) {
    const double loss = golden["losses"][i];
    // A loss is a difference of logits, which are larger than 1, and no finer than they are.
    EXPECT_NEAR(ours.losses[i], loss, tolerance.loss * std::max(loss, 1.0)) << "step " << i + 1;
    largest = std::max(largest, std::abs(ours.losses[i] - loss));
  }
  std::string distances;
  for (const auto& [steps, parameters] : ours.after) {
    const double distance = DistanceTo(golden["after"][std::to_string(steps)], parameters);
    EXPECT_LE(distance, steps == 1 ? tolerance.first_step : tolerance.later_steps)
        << "step " << steps;
    distances += fmt::format(" step {}: {:.1e}", steps, distance);
  }
  fmt::print("{:22} {} clipping {:3} ranks {} against {:30} losses: {:.1e}{}\n",
             golden["name"].get<std::string>(), precision,
             golden["gradient_clipping"].get<double>(), world_size,
             golden["program"].get<std::string>(), largest, distances);
}

INSTANTIATE_TEST_SUITE_P(Programs, OneBitGoldens,
                         ::testing::Range<std::size_t>(0, OneBitRuns().size()),
                         [](const auto& info) {
                           const Json& golden = OneBitRuns()[info.param];
                           return golden["name"].get<std::string>() + "_" +
                                  golden["precision"].get<std::string>() + "_on_" +
                                  std::to_string(golden["world_size"].get<int>());
                         });

}  // namespace
}  // namespace ds::tests
