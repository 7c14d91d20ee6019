#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/config/file/check_config.h"
#include "tests/unit/config/messages.h"

namespace ds::config {
namespace {

using ::testing::IsEmpty;

CheckResult CheckScheduler(const std::string& section, const std::string& lr = "0.25") {
  return CheckConfig(R"({"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": )" +
                         lr + R"(, "betas": [0.9, 0.95]}}, "scheduler": )" + section + "}",
                     "ds.json", 2);
}

TEST(SchedulerRules, ListsMakeASchedulePerGroup) {
  const auto cycle = [](const std::string& min) {
    return CheckScheduler(R"({"type": "OneCycle", "params": {"cycle_min_lr": )" + min +
                          R"(, "cycle_max_lr": 0.2}})");
  };
  EXPECT_TRUE(cycle("0.1").config.group_schedules.empty());
  const CheckResult both = cycle("[0.1, 0.01]");
  EXPECT_THAT(Messages(both.errors), IsEmpty());
  ASSERT_EQ(both.config.group_schedules.size(), 2U);
  EXPECT_EQ(std::get<OneCycle>(both.config.group_schedules[1]).min_lr, 0.01);
  EXPECT_EQ(std::get<OneCycle>(both.config.group_schedules[1]).max_lr, 0.2);
  EXPECT_EQ(std::get<OneCycle>(both.config.scheduler).min_lr, 0.1);
  EXPECT_EQ(cycle("[0.1]").config.group_schedules.size(), 1U);
}

TEST(SchedulerRules, DefaultsThatDependOnTheTypeAreResolvedWithTheirOrigin) {
  const CheckResult step = CheckScheduler(R"({"type": "StepLR", "params": {"step_size": 3}})");
  EXPECT_EQ(std::get<StepLr>(step.config.scheduler).gamma, 0.1);
  EXPECT_EQ(OriginOf(step, "scheduler.params.gamma"), "default of scheduler.type StepLR");
  const CheckResult constant = CheckScheduler(R"({"type": "ConstantLR"})");
  EXPECT_EQ(std::get<ConstantLr>(constant.config.scheduler).factor, 1.0 / 3);
  const CheckResult cycle = CheckScheduler(
      R"({"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 1,
          "cycle_first_step_size": 7, "cycle_first_stair_count": 2}})");
  EXPECT_EQ(std::get<OneCycle>(cycle.config.scheduler).second_step_size, 7);
  EXPECT_EQ(std::get<OneCycle>(cycle.config.scheduler).second_stair_count, 2);
}

TEST(SchedulerRules, StableScheduleWarmsUpLinearly) {
  const CheckResult stable = CheckScheduler(R"({"type": "warmup_stable_decay", "params":
      {"total_num_steps": 9, "num_decay_steps": 2}})");
  EXPECT_EQ(ValueOf(stable, "scheduler.params.warmup_type"), "linear");
}

TEST(SchedulerRules, WarmupEndsAtTheLearningRate) {
  const CheckResult absent = CheckScheduler(R"({"type": "WarmupLR"})");
  EXPECT_EQ(std::get<WarmupLr>(absent.config.scheduler).max_lr, std::nullopt);
  EXPECT_EQ(ValueOf(absent, "scheduler.params.warmup_max_lr"), nullptr)
      << "DeepSpeed would give a number to every parameter group";
  const CheckResult all_alike =
      CheckScheduler(R"({"type": "WarmupLR", "params": {"warmup_max_lr": "auto"}})");
  EXPECT_EQ(std::get<WarmupLr>(all_alike.config.scheduler).max_lr, 0.25);
  EXPECT_EQ(ValueOf(all_alike, "scheduler.params.warmup_max_lr"), 0.25);
  const CheckResult given =
      CheckScheduler(R"({"type": "WarmupLR", "params": {"warmup_max_lr": 0.125}})");
  EXPECT_EQ(std::get<WarmupLr>(given.config.scheduler).max_lr, 0.125);
  const CheckResult decay =
      CheckScheduler(R"({"type": "WarmupDecayLR", "params": {"total_num_steps": 9}})");
  EXPECT_EQ(std::get<WarmupLr>(decay.config.scheduler).max_lr, 0.001);
  const CheckResult automatic = CheckScheduler(
      R"({"type": "WarmupDecayLR", "params": {"total_num_steps": 9, "warmup_max_lr": "auto"}})");
  EXPECT_EQ(std::get<WarmupLr>(automatic.config.scheduler).max_lr, 0.25);
  const CheckResult on_rank = CheckConfig(ToDsConfigJson(automatic), "plain", 2);
  EXPECT_EQ(std::get<WarmupLr>(on_rank.config.scheduler).max_lr, 0.25) << "it travels";
}

TEST(SchedulerRules, OneCycleCyclesNoMomentumWithoutBetas) {
  for (const char* const optimizer :
       {R"({"type": "SGD", "params": {"momentum": 0.5}})",
        R"({"type": "MuSGD", "params": {"momentum": 0.5, "base_shapes": "a.bsh"}})",
        R"({"type": "Muon", "params": {"lr": 0.1}})"}) {
    const CheckResult result = CheckWith(R"("optimizer": )" + std::string(optimizer) +
                                         R"(, "scheduler": {"type": "OneCycle",
                                         "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 1}})");
    EXPECT_FALSE(std::get<OneCycle>(result.config.scheduler).cycle_momentum) << optimizer;
  }
}

TEST(SchedulerRules, OneCycleReplacesTheBetas) {
  const auto beta2 = [](const std::string& more) {
    const CheckResult result = CheckScheduler(
        R"({"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 1)" + more + "}}");
    return std::get<AdamConfig>(result.config.optimizer.algorithm).beta2;
  };
  EXPECT_EQ(beta2(""), 0.99);
  EXPECT_EQ(beta2(R"(, "cycle_momentum": false)"), 0.95);
}

}  // namespace
}  // namespace ds::config
