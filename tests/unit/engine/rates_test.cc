#include "runtime/engine/rates.h"

#include <gtest/gtest.h>

#include <limits>

namespace ds::engine {
namespace {

config::DsConfig WarmingUp() {
  config::DsConfig config;
  config.optimizer.lr = 0.5;
  config.scheduler = config::WarmupLr{
      .min_lr = 0.0, .max_lr = 0.4, .num_steps = 4, .type = config::WarmupType::kLinear};
  return config;
}

config::DsConfig Constant() {
  config::DsConfig config;
  config.optimizer.lr = 0.5;
  return config;
}

TEST(Rates, FollowTheScheduleUntilTheUserSetsOne) {
  Rates rates(WarmingUp(), {});
  const double second = rates.FindNext(2)[0].lr;
  EXPECT_GT(second, 0.0);
  EXPECT_LT(second, 0.4);
  ASSERT_TRUE(rates.Set(0.25).ok());
  EXPECT_EQ(rates.FindNext(2)[0].lr, 0.25);
  rates.OnUpdate();
  EXPECT_EQ(rates.FindNext(2)[0].lr, second);
}

TEST(Rates, ASetOneStaysWhereNoScheduleGivesTheNext) {
  Rates rates(Constant(), {});
  EXPECT_EQ(rates.FindNext(0)[0].lr, 0.5);
  ASSERT_TRUE(rates.Set(0.25).ok());
  rates.OnUpdate();
  EXPECT_EQ(rates.FindNext(1)[0].lr, 0.25);
}

TEST(Rates, RefuseInvalidRates) {
  Rates rates(Constant(), {});
  EXPECT_FALSE(rates.Set(-0.1).ok());
  EXPECT_FALSE(rates.Set(std::numeric_limits<double>::quiet_NaN()).ok());
  EXPECT_FALSE(rates.Set(std::numeric_limits<double>::infinity()).ok());
  EXPECT_FALSE(rates.LoadState({{"set_lr", "high"}}).ok());
  EXPECT_EQ(rates.FindNext(0)[0].lr, 0.5);
}

TEST(Rates, AreSavedAsFarAsTheUserHasSetThem) {
  Rates saved(Constant(), {}), loaded(Constant(), {});
  nlohmann::json state = nlohmann::json::object();
  saved.AddTo(&state);
  EXPECT_TRUE(state.empty());
  ASSERT_TRUE(saved.Set(0.125).ok());
  saved.AddTo(&state);
  ASSERT_TRUE(loaded.LoadState(state).ok());
  EXPECT_EQ(loaded.FindNext(0)[0].lr, 0.125);
  ASSERT_TRUE(loaded.LoadState(nlohmann::json::object()).ok());
  EXPECT_EQ(loaded.FindNext(0)[0].lr, 0.5);
}

TEST(Rates, HaveAValueForEachGroupOfTheLists) {
  config::DsConfig config = WarmingUp();
  config.group_schedules = {config.scheduler, config::ConstantRate{}};
  Rates rates(config, {0.5, 0.75});
  const auto values = rates.FindNext(1);
  ASSERT_EQ(values.size(), 2U);
  EXPECT_LT(values[0].lr, 0.4);
  EXPECT_EQ(values[1].lr, 0.75);
}

TEST(Rates, ThatAreNotFiniteEndTheRunBeforeTheyAreUsed) {
  config::DsConfig config = Constant();
  config.scheduler = config::ExponentialLr{.gamma = 1e200};
  const Rates rates(config, {});
  EXPECT_TRUE(rates.CheckCanResume(1).ok());
  EXPECT_EQ(rates.CheckCanResume(2).message(),
            "the schedule's learning rate after 2 updates is infinite: change scheduler.params");
}

// The rates of Muon's matrices and of its AdamW, from 0.02 and 3e-4, after three calls of step():
// those that DeepSpeed 0.19.8's and PyTorch's schedulers give MuonWithAuxAdam's two groups.
TEST(Rates, OfMuonsHalvesAreThoseOfDeepSpeed) {
  constexpr auto kLinear = config::WarmupType::kLinear;
  const struct {
    config::Schedule schedule;
    double muon, adam;
  } cases[] = {
      {config::ConstantRate{}, 0.02, 3e-4},
      {config::WarmupLr{.min_lr = 1e-3, .num_steps = 4, .type = kLinear}, 0.0105, 0.00065},
      {config::WarmupLr{.max_lr = 0.01, .num_steps = 4, .type = kLinear}, 0.005, 0.005},
      {config::WarmupLr{.max_lr = 1e-3, .num_steps = 4, .type = kLinear, .total_num_steps = 10},
       0.0005, 0.0005},
      {config::WarmupCosineLr{.total_num_steps = 10, .num_steps = 4, .type = kLinear}, 0.01,
       0.00015},
      {config::LrRangeTest{}, 0.0010015, 0.0010015},
      {config::OneCycle{.min_lr = 1e-3,
                        .max_lr = 0.01,
                        .first_step_size = 4,
                        .second_step_size = 4,
                        .cycle_momentum = false},
       0.00775, 0.00775},
      {config::CyclicLr{.base_lr = 1e-3,
                        .max_lr = 0.01,
                        .step_size_up = 4,
                        .step_size_down = 4,
                        .cycle_momentum = false},
       0.00775, 0.00775},
      {config::OneCycleLr{.max_lr = 0.01, .total_steps = 10, .cycle_momentum = false},
       0.009504846320134737, 0.009504846320134737},
      {config::CosineAnnealingLr{.t_max = 10, .eta_min = 1e-4}, 0.01589846326031011,
       0.00025877852522924734},
      {config::StepLr{.step_size = 2}, 0.002, 3e-5}};
  for (const auto& expected : cases) {
    config::DsConfig config;
    config.optimizer = {.lr = 0.02, .algorithm = config::MuonConfig{.adam_lr = 3e-4}};
    config.scheduler = expected.schedule;
    const auto values = Rates(config, {0.02, 3e-4}).FindNext(3);
    ASSERT_EQ(values.size(), 2U);
    EXPECT_NEAR(values[0].lr, expected.muon, 1e-15) << expected.schedule.index();
    EXPECT_NEAR(values[1].lr, expected.adam, 1e-15) << expected.schedule.index();
  }
}

}  // namespace
}  // namespace ds::engine
