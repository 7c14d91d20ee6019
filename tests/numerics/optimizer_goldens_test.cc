// Thirty steps of every optimizer through the engine give the losses and parameters of the program
// that it is compared with, for each world size and ZeRO stage, and the stages give the same bits
// as one another (goldens/optimizers.json, made by scripts/goldens).

#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "runtime/base/files.h"
#include "runtime/config/check_config.h"
#include "tests/ranks/tiny_model.h"
#include "tests/support/rank_harness.h"

namespace ds::tests {
namespace {

using Json = nlohmann::json;
using Parameters = std::map<std::string, at::Tensor>;

const Json& Goldens() {
  static const Json goldens = Json::parse(
      ReadFile(std::filesystem::path(DS_SOURCE_DIR) / "tests/numerics/goldens/optimizers.json")
          .value());
  return goldens;
}

at::Tensor Values(const Json& numbers) {
  return at::tensor(numbers.get<std::vector<double>>()).to(at::kFloat);
}

struct Setting {
  int world_size;
  int stage;
};

struct Outcome {
  std::vector<double> losses;
  std::map<int, Parameters> after;  // by number of steps
};

config::DsConfig ConfigOf(const Json& golden, Setting setting) {
  const Json json = {{"train_batch_size", 2},
                     {"gradient_clipping", golden["gradient_clipping"]},
                     {"optimizer", golden["optimizer"]},
                     {"zero_optimization", {{"stage", setting.stage}}}};
  const auto checked = config::CheckConfig(json.dump(), "ds_config.json", setting.world_size);
  DS_CHECK_MSG(checked.ok, checked.errors.empty() ? "" : checked.errors[0].message);
  return checked.config;
}

Status LoadFirstValues(Block& block) {
  for (const auto& item : block.named_parameters()) {
    const Json& first = Goldens()["first"][block.FullName(item.key())];
    item.value().detach().copy_(Values(first).view(item.value().sizes()));
  }
  return OkStatus();
}

// As scripts/goldens groups the parameters of these runs.
optim::ParameterGrouper GrouperOf(const Json& golden, const BlockList& model) {
  if (!golden["groups"].get<bool>()) return optim::OneGroup;
  return optim::WithLayerwiseRates(optim::NoDecayOnNormsAndBiases, model.size(), 0.8);
}

Outcome Train(const Json& golden, Setting setting) {
  Outcome outcome;
  testing::RunRanks(setting.world_size, [&](comm::Communicator& world) {
    const TinyRun run{.stage = setting.stage};
    const auto model = MakeTinyModel(run.shape, at::kFloat);
    const EngineOptions options{
        .world = &world,
        .load_block = [](int, Block& block) { return LoadFirstValues(block); },
        .parameter_group = GrouperOf(golden, *model)};
    const auto engine = Engine::create(model, ConfigOf(golden, setting), options).value();
    for (const auto& [steps, parameters] : golden["after"].items()) {
      const auto results =
          TrainTiny(*engine, run, std::stoi(steps) - static_cast<int>(engine->finished_steps()));
      const Parameters all = ExportAll(*engine);
      if (world.rank() != 0) continue;
      for (const StepResult& result : results) outcome.losses.push_back(result.loss);
      outcome.after[std::stoi(steps)] = all;
    }
  });
  return outcome;
}

// The largest difference relative to the parameter's largest element, over all parameters.
double DistanceTo(const Json& expected, const Parameters& ours) {
  double largest = 0.0;
  for (const auto& [name, numbers] : expected.items()) {
    const at::Tensor theirs = Values(numbers);
    const double distance = (ours.at(name).flatten() - theirs).abs().max().item<double>();
    largest = std::max(largest, distance / theirs.abs().max().item<double>());
  }
  return largest;
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
  const Json& golden = Goldens()["runs"][GetParam()];
  const int last = static_cast<int>(golden["losses"].size());
  for (const int world_size : {1, 2}) {
    Outcome unsharded;
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} ranks, stage {}", world_size, stage));
      const Outcome ours = Train(golden, {world_size, stage});
      for (int i = 0; i < last; ++i) {
        EXPECT_NEAR(ours.losses[i], golden["losses"][i].get<double>(), 1e-5) << "step " << i + 1;
      }
      const double first_step = DistanceTo(golden["after"]["1"], ours.after.at(1));
      const double last_step =
          DistanceTo(golden["after"][std::to_string(last)], ours.after.at(last));
      EXPECT_LE(first_step, 1e-6);
      EXPECT_LE(last_step, 1e-4);
      fmt::print(
          "{:18} clipping {:3} ranks {} stage {} against {:45} step 1: {:.1e} step {}: {:.1e}\n",
          golden["name"].get<std::string>(), golden["gradient_clipping"].get<double>(), world_size,
          stage, golden["program"].get<std::string>(), first_step, last, last_step);
      if (stage == 0) {
        unsharded = ours;
      } else {
        ExpectSameBits(ours, unsharded);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, OptimizerGoldens,
                         ::testing::Range<std::size_t>(0, Goldens()["runs"].size()),
                         [](const auto& info) {
                           const Json& golden = Goldens()["runs"][info.param];
                           return golden["name"].get<std::string>() +
                                  (golden["gradient_clipping"] == 0.0 ? "" : "_clipped");
                         });

}  // namespace
}  // namespace ds::tests
