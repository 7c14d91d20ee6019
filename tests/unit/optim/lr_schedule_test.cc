#include "runtime/plan/schedule/lr_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/config/file/check_config.h"
#include "tests/places.h"

namespace ds::optim {
namespace {

using nlohmann::json;

// A ds_config with this scheduler section.
config::DsConfig ConfigOf(const json& section, double lr) {
  const json text = {{"train_batch_size", 1},
                     {"optimizer", {{"type", "Adam"}, {"params", {{"lr", lr}}}}},
                     {"scheduler", section}};
  const auto checked = config::CheckConfig(text.dump(), "ds.json", 1);
  EXPECT_TRUE(checked.ok) << section << ": "
                          << (checked.errors.empty() ? "" : checked.errors[0].message);
  return checked.config;
}

// Those of one parameter group, or of several.
json Goldens(bool of_groups) {
  std::ifstream file(DS_SOURCE_DIR "/tests/unit/optim/goldens/schedules.json");
  const json all = json::parse(file, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(all.is_array());
  json chosen = json::array();
  for (const json& golden : all) {
    if (golden["lr"].is_array() == of_groups) chosen.push_back(golden);
  }
  EXPECT_FALSE(chosen.empty());
  return chosen;
}

// Every schedule, read from its ds_config section, gives what the reference leaves in the
// optimizer. PyTorch's chains of products round differently from closed forms, hence not EQ.
TEST(Schedules, EqualTheReferencesForFortyUpdates) {
  std::printf("%-30s %-8s %-14s %s\n", "schedule", "updates", "largest error", "momentum");
  for (const json& golden : Goldens(/*of_groups=*/false)) {
    const double base = golden["lr"];
    const config::Schedule schedule = ConfigOf(golden["scheduler"], base).scheduler;
    ASSERT_EQ(golden["rates"].size(), 40u);
    double worst = 0.0;
    for (std::size_t i = 0; i < golden["rates"].size(); ++i) {
      const ScheduledValues values = ValuesAfter(schedule, base, static_cast<std::int64_t>(i));
      const double rate = golden["rates"][i];
      worst = std::max(worst, std::abs(values.lr - rate) / base);
      EXPECT_NEAR(values.lr, rate, 1e-13 * std::max(base, rate)) << golden["scheduler"] << " " << i;
      ASSERT_EQ(values.momentum.has_value(), golden.contains("beta1")) << golden["scheduler"];
      if (!values.momentum) continue;
      EXPECT_NEAR(*values.momentum, golden["beta1"][i].get<double>(), 1e-14)
          << golden["scheduler"] << " " << i;
    }
    std::printf("%-30s %-8zu %-14.1e %s\n",
                golden["scheduler"]["type"].get_ref<const std::string&>().c_str(),
                golden["rates"].size(), worst, golden.contains("beta1") ? "cycled" : "-");
  }
}

// Lists have a number for each parameter group.
TEST(Schedules, OfGroupsEqualTheReferencesForFortyUpdates) {
  for (const json& golden : Goldens(/*of_groups=*/true)) {
    SCOPED_TRACE(golden["scheduler"].dump());
    const config::DsConfig config = ConfigOf(golden["scheduler"], golden["lr"][0]);
    ASSERT_EQ(config.group_schedules.size(), 2U);
    for (std::size_t group = 0; group < 2; ++group) {
      const double base = golden["lr"][group];
      for (std::size_t i = 0; i < 40; ++i) {
        const ScheduledValues values =
            ValuesAfter(config.group_schedules[group], base, static_cast<std::int64_t>(i));
        const double rate = golden["rates"][group][i];
        EXPECT_NEAR(values.lr, rate, 1e-13 * std::max(base, rate)) << group << " " << i;
        ASSERT_EQ(values.momentum.has_value(), golden.contains("beta1"));
        if (!values.momentum) continue;
        EXPECT_NEAR(*values.momentum, golden["beta1"][group][i].get<double>(), 1e-14)
            << group << " " << i;
      }
    }
  }
}

TEST(Schedules, OfGroupsEndWithTheFirstOfThem) {
  const json section = {{"type", "OneCycle"},
                        {"params",
                         {{"cycle_min_lr", 0.01},
                          {"cycle_max_lr", 0.1},
                          {"cycle_first_step_size", 5},
                          {"decay_step_size", 2},
                          {"decay_mom_rate", 0.03},
                          {"cycle_max_mom", {0.5, 0.9}}}}};
  const config::DsConfig config = ConfigOf(section, 0.01);
  ASSERT_EQ(config.group_schedules.size(), 2U);
  EXPECT_EQ(LastUpdateOf(config), LastUpdate(config.group_schedules[1]));
  EXPECT_LT(LastUpdateOf(config).value(), LastUpdate(config.group_schedules[0]).value());
}

TEST(Schedules, WithoutOneTheRateIsTheGroups) {
  EXPECT_EQ(ValuesAfter(config::ConstantRate{}, 0.02, 0).lr, 0.02);
  EXPECT_EQ(ValuesAfter(config::ConstantRate{}, 0.03, 5000).lr, 0.03);
  EXPECT_FALSE(ValuesAfter(config::ConstantRate{}, 0.02, 1).momentum.has_value());
}

// DeepSpeed's WarmupLR sets the minimum when it is built, and its index 0 gives the minimum again.
TEST(Schedules, WarmupStartsWithTheMinimumTwice) {
  for (const auto type : {config::WarmupType::kLog, config::WarmupType::kLinear}) {
    const config::Schedule warmup =
        config::WarmupLr{.min_lr = 0.01, .max_lr = 0.11, .num_steps = 10, .type = type};
    EXPECT_DOUBLE_EQ(ValuesAfter(warmup, 1.0, 0).lr, 0.01);
    EXPECT_DOUBLE_EQ(ValuesAfter(warmup, 1.0, 1).lr, 0.01);
    EXPECT_GT(ValuesAfter(warmup, 1.0, 2).lr, 0.01);
  }
}

TEST(Schedules, EachParameterGroupKeepsItsOwnBase) {
  const config::Schedule warmup = config::WarmupLr{.num_steps = 4};
  EXPECT_DOUBLE_EQ(ValuesAfter(warmup, 0.5, 100).lr, 0.5);
  EXPECT_DOUBLE_EQ(ValuesAfter(warmup, 0.25, 100).lr, 0.25);
  const config::Schedule decay = config::StepLr{.step_size = 10, .gamma = 0.5};
  EXPECT_DOUBLE_EQ(ValuesAfter(decay, 0.25, 10).lr, 0.125);
}

TEST(Schedules, TakeTheLargestCountsThereAre) {
  constexpr std::int64_t kMost = INT64_MAX;
  const config::CosineAnnealingWarmRestarts restarts{.t_0 = 2, .t_mult = kMost};
  const config::CyclicLr cyclic{
      .base_lr = 0.001, .max_lr = 0.1, .step_size_up = kMost, .step_size_down = kMost};
  for (const std::int64_t update : {1, 3, 1000000}) {
    const double rate = ValuesAfter(restarts, 0.5, update).lr;
    EXPECT_NEAR(rate, update == 1 ? 0.25 : 0.5, 1e-9) << "the second period hardly begins";
    EXPECT_NEAR(ValuesAfter(cyclic, 0.5, update).lr, 0.001, 1e-9);
  }
}

TEST(Schedules, SomeEnd) {
  EXPECT_EQ(LastUpdate(config::StepLr{}), std::nullopt);
  EXPECT_EQ(LastUpdate(config::OneCycleLr{.total_steps = 40}), 40);
  EXPECT_EQ(LastUpdate(config::OneCycle{.decay_mom_rate = 0.1}), std::nullopt);
  const config::OneCycle growing{.first_step_size = 5,
                                 .second_step_size = 5,
                                 .decay_step_size = 2,
                                 .max_mom = 0.9,
                                 .decay_mom_rate = 0.03};
  const std::int64_t last = LastUpdate(growing).value();
  EXPECT_LT(*ValuesAfter(growing, 1.0, last - 1).momentum, 1.0);
  EXPECT_GE(*ValuesAfter(growing, 1.0, last).momentum, 1.0);
}

}  // namespace
}  // namespace ds::optim
