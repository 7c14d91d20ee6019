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

TEST(Rates, RefuseWhatIsNoRate) {
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

}  // namespace
}  // namespace ds::engine
