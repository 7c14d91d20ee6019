// Thirty steps of MuAdam, MuAdamW and MuSGD through the engine follow those of the mup package, for
// each precision, world size and ZeRO stage (goldens/mu.json, made by scripts/goldens).

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tests/numerics/optimizer_run.h"
#include "tests/places.h"

namespace ds::tests {
namespace {

using Json = nlohmann::json;

// With the file of base shapes where it is in this checkout.
const Json& MuRuns() {
  static const Json goldens = [] {
    Json runs = ReadGoldens("mu.json");
    for (Json& run : runs) {
      Json& file = run["optimizer"]["params"]["base_shapes"];
      file = (std::filesystem::path(DS_SOURCE_DIR) / "tests/numerics/goldens" / file).string();
    }
    return runs;
  }();
  return goldens;
}

// The parameter is the number of the run.
class MuGoldens : public ::testing::TestWithParam<std::size_t> {};

TEST_P(MuGoldens, EveryWorldAndStageFollowsTheReference) {
  const Json& golden = MuRuns()[GetParam()];
  const int last = static_cast<int>(golden["losses"].size());
  const std::string precision = golden["precision"];
  const Tolerance tolerance = ToleranceOf(golden);
  for (const Setting setting : {Setting{1, 0}, {2, 0}, {2, 1}, {2, 2}, {2, 3}}) {
    if (golden.value("world_size", setting.world_size) != setting.world_size) continue;
    SCOPED_TRACE(fmt::format("{} ranks, stage {}", setting.world_size, setting.stage));
    const Outcome ours = TrainAs(golden, setting);
    double largest = 0.0;
    for (int i = 0; i < last; ++i) {
      const double loss = golden["losses"][i];
      // A loss is a difference of logits, which are larger than 1, and no finer than they are.
      EXPECT_NEAR(ours.losses[i], loss, tolerance.loss * std::max(loss, 1.0)) << "step " << i + 1;
      largest = std::max(largest, std::abs(ours.losses[i] - loss));
    }
    const double first_step = DistanceTo(golden["after"]["1"], ours.after.at(1));
    const double last_step = DistanceTo(golden["after"][std::to_string(last)], ours.after.at(last));
    EXPECT_LE(first_step, tolerance.first_step);
    EXPECT_LE(last_step, tolerance.later_steps);
    fmt::print(
        "{:8} {} clipping {:3} ranks {} stage {} against {:20} losses: {:.1e} step 1: {:.1e} "
        "step {}: {:.1e}\n",
        golden["name"].get<std::string>(), precision, golden["gradient_clipping"].get<double>(),
        setting.world_size, setting.stage, golden["program"].get<std::string>(), largest,
        first_step, last, last_step);
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, MuGoldens, ::testing::Range<std::size_t>(0, MuRuns().size()),
                         [](const auto& info) {
                           const Json& golden = MuRuns()[info.param];
                           return golden["name"].get<std::string>() + "_" +
                                  golden["precision"].get<std::string>() +
                                  (golden["gradient_clipping"] == 0.0 ? "" : "_clipped") +
                                  (golden.value("world_size", 1) == 1 ? "" : "_on_2");
                         });

}  // namespace
}  // namespace ds::tests
