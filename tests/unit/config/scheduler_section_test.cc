#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/config/file/check_config.h"
#include "tests/unit/config/messages.h"

namespace ds::config {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CheckResult CheckScheduler(const std::string& section, const std::string& lr = "0.25") {
  return CheckConfig(R"({"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": )" +
                         lr + R"(, "betas": [0.9, 0.95]}}, "scheduler": )" + section + "}",
                     "ds.json", 2);
}

std::vector<std::string> SchedulerErrors(const std::string& section) {
  return Messages(CheckScheduler(section).errors);
}

TEST(SchedulerRules, SchedulerParamsNeedAType) {
  EXPECT_THAT(SchedulerErrors(R"({"params": {"warmup_num_steps": 5}})"),
              ElementsAre(HasSubstr("scheduler.params.warmup_num_steps needs scheduler.type")));
}

TEST(SchedulerRules, ScheduleIsDescribedByNumbers) {
  EXPECT_THAT(SchedulerErrors(R"({"type": "LambdaLR"})"),
              ElementsAre(HasSubstr("\"LambdaLR\" needs a function, which JSON cannot hold")));
  EXPECT_THAT(SchedulerErrors(R"({"type": "SequentialLR"})"),
              ElementsAre(HasSubstr("needs scheduler objects")));
  EXPECT_THAT(SchedulerErrors(R"({"type": "ReduceLROnPlateau"})"),
              ElementsAre(HasSubstr("needs a metric")));
  EXPECT_THAT(SchedulerErrors(R"({"type": "WarmupCosinLR"})"),
              ElementsAre(HasSubstr("did you mean 'WarmupCosineLR'?")));
}

TEST(SchedulerRules, ListsHaveOneLength) {
  const auto cycle = [](const std::string& min, const std::string& max) {
    return R"({"type": "OneCycle", "params": {"cycle_min_lr": )" + min + R"(, "cycle_max_lr": )" +
           max + "}}";
  };
  EXPECT_TRUE(CheckScheduler(cycle("0.1", "0.2")).config.group_schedules.empty());
  const CheckResult both = CheckScheduler(cycle("[0.1, 0.01]", "0.2"));
  EXPECT_THAT(Messages(both.errors), IsEmpty());
  ASSERT_EQ(both.config.group_schedules.size(), 2U);
  EXPECT_EQ(std::get<OneCycle>(both.config.group_schedules[1]).min_lr, 0.01);
  EXPECT_EQ(std::get<OneCycle>(both.config.group_schedules[1]).max_lr, 0.2);
  EXPECT_EQ(std::get<OneCycle>(both.config.scheduler).min_lr, 0.1);
  EXPECT_EQ(CheckScheduler(cycle("[0.1]", "0.2")).config.group_schedules.size(), 1U);
  EXPECT_THAT(SchedulerErrors(cycle("[0.1, 0.01]", "[1, 2, 3]")),
              ElementsAre(HasSubstr("cycle_max_lr has 3 numbers and scheduler.params.cycle_min_lr "
                                    "has 2: give one for each parameter group")));
  EXPECT_THAT(SchedulerErrors(cycle("[0.1, -1]", "1")),
              ElementsAre(HasSubstr("must be at least 0, not -1")));
  EXPECT_THAT(SchedulerErrors(cycle("[0.1, \"1\"]", "1")),
              ElementsAre(HasSubstr("must be a number or a list of them, not [0.1,\"1\"]")));
  EXPECT_THAT(SchedulerErrors(cycle("[]", "1")), ElementsAre(HasSubstr("a list of them, not []")));
  EXPECT_THAT(SchedulerErrors(R"({"type": "StepLR", "params": {"step_size": [3, 4]}})"),
              ElementsAre(HasSubstr("must be a whole number")));
  EXPECT_THAT(SchedulerErrors(R"({"type": "OneCycleLR", "params": {"max_lr": 0.1, "total_steps": 9,
                         "max_momentum": [0.9, 1]}})"),
              ElementsAre(HasSubstr("must be below 1")));
}

TEST(SchedulerRules, ScheduleTakesItsParams) {
  EXPECT_THAT(SchedulerErrors(R"({"type": "StepLR"})"),
              ElementsAre(HasSubstr("\"StepLR\" needs scheduler.params.step_size")));
  EXPECT_THAT(SchedulerErrors(R"({"type": "OneCycle"})"),
              ElementsAre(HasSubstr("needs scheduler.params.cycle_min_lr"),
                          HasSubstr("needs scheduler.params.cycle_max_lr")));
  EXPECT_THAT(SchedulerErrors(R"({"type": "WarmupLR", "params": {"total_num_steps": 5}})"),
              ElementsAre(HasSubstr("scheduler.params.total_num_steps is not a parameter of "
                                    "WarmupLR, which takes warmup_min_lr, warmup_max_lr")));
  const JobFacts facts{.total_steps = 9};
  EXPECT_THAT(Messages(CheckConfig(R"({"train_batch_size": 8, "scheduler": {"type": "WarmupLR",
                               "params": {"total_num_steps": "auto"}}})",
                                   "ds.json", facts)
                           .errors),
              ElementsAre(HasSubstr("total_num_steps is not a parameter of WarmupLR")));
  EXPECT_THAT(SchedulerErrors(R"({"type": "StepLR", "params": {"step_size": 0}})"),
              ElementsAre(HasSubstr("must be between 1 and")));
  EXPECT_THAT(SchedulerErrors(R"({"type": "StepLR", "params": {"step_size": 3, "last_epoch": 2}})"),
              ElementsAre(HasSubstr("comes from the checkpoint")));
  EXPECT_TRUE(
      CheckScheduler(R"({"type": "StepLR", "params": {"step_size": 3, "last_epoch": -1}})").ok);
  EXPECT_TRUE(CheckScheduler(R"({"type": "WarmupLR", "params": {"last_batch_iteration": -1}})").ok);
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

TEST(SchedulerRules, ScheduleIsDefined) {
  EXPECT_THAT(SchedulerErrors(R"({"type": "MultiStepLR", "params": {"milestones": [3, -1]}})"),
              ElementsAre(HasSubstr("milestones must be whole numbers from 0, not [3,-1]")));
  EXPECT_THAT(SchedulerErrors(R"({"type": "MultiStepLR", "params": {"milestones": [3, 1.5]}})"),
              ElementsAre(HasSubstr("milestones must be whole numbers")));
  EXPECT_THAT(SchedulerErrors(R"({"type": "LinearLR", "params": {"start_factor": 0}})"),
              ElementsAre(HasSubstr("start_factor must be above 0")));
  EXPECT_THAT(SchedulerErrors(R"({"type": "CyclicLR", "params": {"base_lr": 0.1, "max_lr": 1,
                         "max_momentum": 1}})"),
              ElementsAre(HasSubstr("max_momentum must be below 1")));
  EXPECT_THAT(SchedulerErrors(R"({"type": "OneCycleLR", "params": {"max_lr": 1, "epochs": 3}})"),
              ElementsAre(HasSubstr("needs scheduler.params.total_steps, or epochs and")));
  EXPECT_THAT(
      SchedulerErrors(
          R"({"type": "OneCycleLR", "params": {"max_lr": 1, "epochs": 3, "steps_per_epoch": 2}})"),
      IsEmpty());
  EXPECT_THAT(
      SchedulerErrors(R"({"type": "OneCycleLR", "params": {"max_lr": 1, "epochs": 4294967296,
                         "steps_per_epoch": 4294967296}})"),
      ElementsAre(HasSubstr("epochs times steps_per_epoch must be at most 1099511627776")));
  EXPECT_THAT(SchedulerErrors(R"({"type": "CosineAnnealingWarmRestarts", "params": {"T_0": 2,
                         "T_mult": 9223372036854775807}})"),
              ElementsAre(HasSubstr("T_mult must be between 1 and 1099511627776")));
  EXPECT_THAT(SchedulerErrors(R"({"type": "OneCycle", "params": {"cycle_min_lr": 0.1,
                         "cycle_max_lr": 1, "cycle_first_stair_count": 9223372036854775807}})"),
              ElementsAre(HasSubstr("stair_count must be at most 1048576")));
}

TEST(SchedulerRules, WarmupFitsTheSchedule) {
  const auto errors = [](const std::string& type, const std::string& params) {
    return SchedulerErrors(R"({"type": ")" + type + R"(", "params": {"total_num_steps": 9, )" +
                           params + "}}");
  };
  EXPECT_THAT(errors("WarmupDecayLR", R"("warmup_num_steps": 0)"),
              ElementsAre(HasSubstr("warmup_num_steps must be at least 1 with")));
  EXPECT_THAT(errors("linear", R"("warmup_num_steps": 0)"), IsEmpty());
  EXPECT_THAT(errors("WarmupCosineLR", R"("warmup_type": "1-sqrt")"),
              ElementsAre(HasSubstr("must be \"log\" or \"linear\" with scheduler.type")));
  EXPECT_THAT(errors("warmup_stable_decay", R"("num_decay_steps": 2, "warmup_type": "log")"),
              ElementsAre(HasSubstr("\"cosine\" or \"1-sqrt\" with scheduler.type")));
  const CheckResult stable = CheckScheduler(R"({"type": "warmup_stable_decay", "params":
      {"total_num_steps": 9, "num_decay_steps": 2}})");
  EXPECT_EQ(ValueOf(stable, "scheduler.params.warmup_type"), "linear");
}

TEST(SchedulerRules, LowestRateIsBelowTheRate) {
  const auto errors = [](const std::string& type, const std::string& params) {
    return SchedulerErrors(R"({"type": ")" + type + R"(", "params": {"total_num_steps": 9)" +
                           params + "}}");
  };
  EXPECT_THAT(errors("polynomial", R"(, "lr_end": 0.25)"),
              ElementsAre(HasSubstr("lr_end must be below optimizer.params.lr, which is 0.25")));
  EXPECT_THAT(errors("polynomial", ""), IsEmpty());
  for (const char* const type : {"cosine_with_min_lr", "cosine_warmup_with_min_lr"}) {
    EXPECT_THAT(errors(type, ""), ElementsAre(HasSubstr("min_lr or scheduler.params.min_lr_rate")));
    EXPECT_THAT(errors(type, R"(, "min_lr": 0.1, "min_lr_rate": 0.5)"),
                ElementsAre(HasSubstr("min_lr_rate, not both")));
    EXPECT_THAT(errors(type, R"(, "min_lr": 0.1)"), IsEmpty());
  }
}

TEST(SchedulerRules, ScheduleLastsAsLongAsTheRun) {
  const auto warnings = [](const std::string& type, const std::string& params, std::int64_t steps) {
    return Messages(CheckConfig(R"({"train_batch_size": 8, "optimizer": {"type": "Adam", "params":
        {"lr": 0.001}}, "scheduler": {"type": ")" +
                                    type + R"(", "params": {)" + params + "}}}",
                                "ds.json", {.total_steps = steps})
                        .warnings);
  };
  const std::string decay = R"("num_decay_steps": 2, "num_stable_steps": 3, "total_num_steps": 8)";
  EXPECT_THAT(warnings("cosine", R"("total_num_steps": 6)", 8),
              ElementsAre(HasSubstr("total_num_steps is 6, so that scheduler.type cosine ends at "
                                    "step 6, and the run has 8 steps")));
  EXPECT_THAT(warnings("warmup_stable_decay", decay, 8),
              ElementsAre(HasSubstr("num_stable_steps is 3, so that scheduler.type "
                                    "warmup_stable_decay ends at step 5")));
  EXPECT_THAT(warnings("PolynomialLR", R"("total_iters": 7)", 8),
              ElementsAre(HasSubstr("ends at step 7")));
  EXPECT_THAT(warnings("LinearLR", R"("end_factor": 0.0)", 8), ElementsAre(HasSubstr("step 5")));
  EXPECT_THAT(warnings("LinearLR", "", 8), IsEmpty()) << "it rises";
  EXPECT_THAT(warnings("cosine", R"("total_num_steps": 8)", 8), IsEmpty());
  EXPECT_THAT(warnings("cosine", R"("total_num_steps": "auto")", 8), IsEmpty());
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
  EXPECT_THAT(Messages(decay.warnings),
              Contains(HasSubstr("warmup_max_lr is 0.001, WarmupDecayLR's default, and not")));
}

TEST(SchedulerRules, ScheduleReplacesMuonsRates) {
  const auto warnings = [](const std::string& params, const std::string& scheduler) {
    return Messages(CheckWith(R"("optimizer": {"type": "Muon", "params": {)" + params +
                              R"(}}, "scheduler": )" + scheduler)
                        .warnings);
  };
  const std::string range = R"({"type": "LRRangeTest"})";
  EXPECT_THAT(warnings("", range),
              ElementsAre(HasSubstr("Muon's rate 0.02 and its AdamW's, 0.0003, are both replaced "
                                    "by that of scheduler.type LRRangeTest")));
  EXPECT_THAT(warnings("\"lr\": 0.01", range), IsEmpty()) << "there is one rate";
  EXPECT_THAT(warnings("", R"({"type": "WarmupLR"})"), IsEmpty());
  EXPECT_THAT(warnings("", R"({"type": "WarmupLR", "params": {"warmup_max_lr": 0.1}})"),
              ElementsAre(HasSubstr("replaced by that of scheduler.type WarmupLR")));
  EXPECT_THAT(warnings("", R"({"type": "WarmupLR", "params": {"warmup_max_lr": [0.1, 0.2]}})"),
              IsEmpty());
  EXPECT_THAT(warnings("", R"({"type": "StepLR", "params": {"step_size": 3}})"), IsEmpty());
}

TEST(SchedulerRules, CycledMomentumNeedsAPlace) {
  const auto check = [](const std::string& optimizer, const std::string& scheduler) {
    return CheckConfig(R"({"train_batch_size": 8, "optimizer": )" + optimizer +
                           R"(, "scheduler": )" + scheduler + "}",
                       "ds.json", 2);
  };
  const std::string one_cycle =
      R"({"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 1}})";
  const CheckResult kept = check(R"({"type": "SGD", "params": {"momentum": 0.5}})", one_cycle);
  EXPECT_FALSE(std::get<OneCycle>(kept.config.scheduler).cycle_momentum);
  EXPECT_THAT(Messages(kept.warnings), Contains(HasSubstr("which has no betas")));
  const CheckResult mu =
      check(R"({"type": "MuSGD", "params": {"momentum": 0.5, "base_shapes": "a.bsh"}})", one_cycle);
  EXPECT_FALSE(std::get<OneCycle>(mu.config.scheduler).cycle_momentum);
  const std::string cyclic = R"({"type": "CyclicLR", "params": {"base_lr": 0.1, "max_lr": 1}})";
  const CheckResult muon = check(R"({"type": "Muon", "params": {"lr": 0.1}})", one_cycle);
  EXPECT_FALSE(std::get<OneCycle>(muon.config.scheduler).cycle_momentum);
  EXPECT_THAT(Messages(muon.warnings), ElementsAre(HasSubstr("no effect with optimizer \"Muon\"")));
  EXPECT_THAT(Messages(check(R"({"type": "Muon", "params": {"lr": 0.1}})", cyclic).errors),
              ElementsAre(HasSubstr("cycle_momentum must be false with optimizer \"Muon\"")));
  EXPECT_THAT(Messages(check(R"({"type": "Adagrad"})", cyclic).errors),
              ElementsAre(HasSubstr("cycle_momentum must be false with optimizer \"Adagrad\"")));
  EXPECT_THAT(Messages(check(R"({"type": "SGD", "params": {"momentum": 0.5}})", cyclic).errors),
              IsEmpty());
}

TEST(SchedulerRules, OneCycleReplacesTheBetas) {
  const std::string params = R"("cycle_min_lr": 0.1, "cycle_max_lr": 1)";
  const CheckResult cycled = CheckScheduler(R"({"type": "OneCycle", "params": {)" + params + "}}");
  EXPECT_EQ(std::get<AdamConfig>(cycled.config.optimizer.algorithm).beta2, 0.99);
  EXPECT_THAT(Messages(cycled.warnings), Contains(HasSubstr("is replaced by scheduler.type")));
  const CheckResult kept = CheckScheduler(R"({"type": "OneCycle", "params": {)" + params +
                                          R"(, "cycle_momentum": false}})");
  EXPECT_EQ(std::get<AdamConfig>(kept.config.optimizer.algorithm).beta2, 0.95);
  EXPECT_THAT(kept.warnings, IsEmpty());
}

}  // namespace
}  // namespace ds::config
