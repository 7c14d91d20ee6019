// Thirty steps of MuAdam, MuAdamW and MuSGD through the engine follow those of the mup package, for
// each world size and ZeRO stage (goldens/mu.json, made by scripts/goldens).

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/numerics/optimizer_run.h"

namespace ds::tests {
namespace {

using Json = nlohmann::json;

// With the file of base shapes where it is in this checkout.
const Json& Goldens() {
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
  const Json& golden = Goldens()[GetParam()];
  const int last = static_cast<int>(golden["losses"].size());
  for (const Setting setting : {Setting{1, 0}, {2, 0}, {2, 1}, {2, 2}, {2, 3}}) {
    SCOPED_TRACE(fmt::format("{} ranks, stage {}", setting.world_size, setting.stage));
    const Outcome ours = TrainAs(golden, setting);
    for (int i = 0; i < last; ++i) {
      EXPECT_NEAR(ours.losses[i], golden["losses"][i].get<double>(), 1e-5) << "step " << i + 1;
    }
    const double first_step = DistanceTo(golden["after"]["1"], ours.after.at(1));
    const double last_step = DistanceTo(golden["after"][std::to_string(last)], ours.after.at(last));
    EXPECT_LE(first_step, 1e-6);
    EXPECT_LE(last_step, 1e-4);
    fmt::print(
        "{:8} clipping {:3} ranks {} stage {} against {:20} step 1: {:.1e} step {}: {:.1e}\n",
        golden["name"].get<std::string>(), golden["gradient_clipping"].get<double>(),
        setting.world_size, setting.stage, golden["program"].get<std::string>(), first_step, last,
        last_step);
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, MuGoldens, ::testing::Range<std::size_t>(0, Goldens().size()),
                         [](const auto& info) {
                           const Json& golden = Goldens()[info.param];
                           return golden["name"].get<std::string>() +
                                  (golden["gradient_clipping"] == 0.0 ? "" : "_clipped");
                         });

}  // namespace
}  // namespace ds::tests
