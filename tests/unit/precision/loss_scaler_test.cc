#include "runtime/engine/loss_scaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "tests/places.h"

namespace ds::precision {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Without the last one, which holds PyTorch's defaults.
json Goldens(json* defaults = nullptr) {
  std::ifstream file(DS_SOURCE_DIR "/tests/unit/precision/goldens/loss_scaler.json");
  json goldens = json::parse(file, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(goldens.is_array());
  if (defaults != nullptr) *defaults = goldens.back();
  goldens.erase(goldens.size() - 1);
  return goldens;
}

LossScaleRule RuleOf(const json& golden) {
  LossScaleRule rule{.dynamic = true,
                     .initial_scale = std::pow(2.0, golden["power"].get<int>()),
                     .window = golden["window"]};
  if (golden["scaler"] == "torch") {
    rule.minimum = std::numeric_limits<float>::min();
    rule.hysteresis = 1;
    rule.first_step_counts = true;
    return rule;
  }
  rule.minimum = golden["minimum"];
  if (golden["scaler"] == "zero") {
    rule.hysteresis = golden["hysteresis"].get<std::int64_t>();
    rule.consecutive_hysteresis = golden["consecutive"];
  }
  return rule;
}

// The scale after each step, until one fails.
std::vector<double> ScalesAfter(LossScaler& scaler, const std::string& steps) {
  std::vector<double> scales;
  for (const char step : steps) {
    if (!scaler.Update(step == 'o').ok()) break;
    scales.push_back(scaler.scale());
  }
  return scales;
}

TEST(LossScaler, MovesAsDeepSpeedsScalersAndPyTorchsDo) {
  std::size_t ended = 0;
  for (const json& golden : Goldens()) {
    LossScaler scaler(RuleOf(golden));
    const std::vector<double> scales = ScalesAfter(scaler, golden["steps"]);
    EXPECT_EQ(scales, golden["scales"].get<std::vector<double>>()) << golden;
    ended += scales.size() < golden["steps"].get<std::string>().size() ? 1 : 0;
  }
  EXPECT_GT(ended, 3u) << "some end at the minimum";
}

TEST(LossScaler, ResumesFromItsStateAtAnyStep) {
  for (const json& golden : Goldens()) {
    const std::string steps = golden["steps"];
    for (const std::size_t cut : {std::size_t{0}, steps.size() / 3, steps.size() / 2}) {
      LossScaler before(RuleOf(golden));
      std::vector<double> scales = ScalesAfter(before, steps.substr(0, cut));
      if (scales.size() < cut) continue;
      LossScaler after(RuleOf(golden));
      ASSERT_TRUE(after.LoadState(json::parse(before.State().dump())).ok());
      for (const double scale : ScalesAfter(after, steps.substr(cut))) scales.push_back(scale);
      EXPECT_EQ(scales, golden["scales"].get<std::vector<double>>()) << golden << " " << cut;
    }
  }
}

TEST(LossScaler, AStaticScaleNeverMovesNorFails) {
  LossScaler scaler({.initial_scale = 128.0});
  EXPECT_EQ(ScalesAfter(scaler, "ffoooofff"), std::vector<double>(9, 128.0));
  LossScaler other({.initial_scale = 64.0});
  ASSERT_TRUE(other.LoadState(scaler.State()).ok());
  EXPECT_EQ(other.scale(), 64.0) << "the config's";
}

TEST(LossScaler, OfAutocastInFp16IsPyTorchsAtEveryStage) {
  json defaults;
  Goldens(&defaults);
  config::DsConfig config;
  config.torch_autocast = {.enabled = true, .dtype = config::DataType::kFp16};
  for (const int stage : {0, 1, 3}) {
    config.zero_optimization.stage = stage;
    LossScaler scaler = MakeLossScaler(config);
    const double first = std::pow(2.0, defaults["power"].get<int>());
    EXPECT_EQ(scaler.scale(), first);
    const std::string clean(defaults["window"].get<std::size_t>(), 'f');
    EXPECT_EQ(ScalesAfter(scaler, clean.substr(1)), std::vector<double>(clean.size() - 1, first));
    EXPECT_EQ(ScalesAfter(scaler, "foo"), (std::vector<double>{2 * first, first, first / 2}));
    EXPECT_EQ(ScalesAfter(scaler, std::string(200, 'o')).size(), 15U + 126U)
        << "down to the smallest normal number";
  }
  config.torch_autocast.dtype = config::DataType::kBf16;
  EXPECT_FALSE(MakeLossScaler(config).dynamic());
}

TEST(LossScaler, StartsAnewAfterARunWithoutOne) {
  LossScaler without({});
  ASSERT_TRUE(without.Update(false).ok());
  LossScaler scaler({.dynamic = true, .initial_scale = 256.0, .window = 1});
  ASSERT_TRUE(scaler.LoadState(without.State()).ok());
  EXPECT_EQ(ScalesAfter(scaler, "ff"), (std::vector<double>{256.0, 512.0}));
}

TEST(LossScaler, AtTheMinimumNamesARemedy) {
  LossScaler scaler({.dynamic = true, .initial_scale = 1.0, .hysteresis = 1});
  EXPECT_THAT(scaler.Update(true).message(), HasSubstr("the fp16 loss scale is at its minimum"));
  EXPECT_EQ(scaler.scale(), 1.0);
}

TEST(LossScaler, RefusesInvalidStates) {
  LossScaler scaler({.dynamic = true, .initial_scale = 4.0, .hysteresis = 2});
  const json good = scaler.State();
  const auto with = [&](const char* key, const json& value) {
    json state = good;
    state[key] = value;
    return scaler.LoadState(state);
  };
  EXPECT_TRUE(scaler.LoadState(good).ok());
  EXPECT_EQ(scaler.LoadState(json::object()).code(), StatusCode::kDataLoss);
  EXPECT_EQ(with("scale", 0).code(), StatusCode::kDataLoss);
  EXPECT_EQ(with("scale", "4").code(), StatusCode::kDataLoss);
  EXPECT_EQ(with("steps", -1).code(), StatusCode::kDataLoss);
  EXPECT_EQ(with("last_overflow", 5).code(), StatusCode::kDataLoss);
  EXPECT_EQ(scaler.scale(), 4.0);
}

TEST(LossScaler, ReportsTheNewScale) {
  LossScaler zero({.dynamic = true, .initial_scale = 65536.0, .minimum = 1.0, .hysteresis = 3});
  const auto overflow = [](LossScaler& scaler) {
    const double before = scaler.scale();
    EXPECT_TRUE(scaler.Update(true).ok());
    return scaler.DescribeOverflow(before);
  };
  EXPECT_EQ(overflow(zero),
            "the loss scale stays at 65536 (hysteresis: 2 more overflows halve it)");
  EXPECT_EQ(overflow(zero),
            "the loss scale stays at 65536 (hysteresis: the next overflow halves it)");
  EXPECT_EQ(overflow(zero), "the loss scale changes from 65536 to 32768");
  LossScaler stage_0({.dynamic = true, .initial_scale = 4.0, .minimum = 3.0});
  EXPECT_EQ(overflow(stage_0), "the loss scale changes from 4 to 3");
  EXPECT_EQ(overflow(stage_0), "the loss scale stays at its minimum, 3");
  LossScaler fixed({.initial_scale = 128.0});
  EXPECT_EQ(overflow(fixed), "the loss scale is fixed at 128");
}

}  // namespace
}  // namespace ds::precision
