#include "runtime/config/sections/auto_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/config/check/value_check.h"
#include "runtime/config/file/check_config.h"
#include "runtime/config/keys/registry.h"
#include "tests/unit/config/goldens.h"
#include "tests/unit/config/messages.h"

namespace ds::config {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::ordered_json;

CheckResult Check(const std::string& text, const JobFacts& facts) {
  return CheckConfig(text, "ds.json", facts);
}

template <typename T>
void Read(const nlohmann::json& flags, const char* name, T* value) {
  if (flags.contains(name)) *value = flags.at(name).get<typename T::value_type>();
}

TrainingFlags FlagsOf(const nlohmann::json& flags) {
  TrainingFlags out;
  Read(flags, "per_device_train_batch_size", &out.per_device_train_batch_size);
  Read(flags, "gradient_accumulation_steps", &out.gradient_accumulation_steps);
  Read(flags, "learning_rate", &out.learning_rate);
  Read(flags, "adam_beta1", &out.adam_beta1);
  Read(flags, "adam_beta2", &out.adam_beta2);
  Read(flags, "adam_epsilon", &out.adam_epsilon);
  Read(flags, "weight_decay", &out.weight_decay);
  Read(flags, "max_grad_norm", &out.max_grad_norm);
  Read(flags, "warmup_steps", &out.warmup_steps);
  Read(flags, "bf16", &out.bf16);
  Read(flags, "fp16", &out.fp16);
  return out;
}

// Every leaf of `expected` is what the key was resolved to; "auto" is left where DeepSpeed itself
// then takes the default, and the runtime, of stage 3's budgets, a choice of its own.
void ExpectResolved(const CheckResult& result, const nlohmann::json& expected,
                    const std::string& prefix) {
  for (const auto& [name, value] : expected.items()) {
    const std::string key = prefix + name;
    if (value.is_object()) {
      ExpectResolved(result, value, key + ".");
      continue;
    }
    const Setting* setting = FindSetting(key);
    ASSERT_NE(setting, nullptr) << key;
    const bool is_own = value == "auto" && key.starts_with("zero_optimization.stage3_");
    const Json left = is_own ? Json() : DefaultValue(*setting);
    const Json wanted = value == "auto" ? left : Json(value);
    EXPECT_EQ(ValueOf(result, key), wanted) << key;
  }
}

// Features that are not built are refused, which is not the question here.
TEST(AutoValuesTest, AreThoseOfTransformers) {
  const auto contradiction = ::testing::AnyOf(HasSubstr("make them agree"),
                                              HasSubstr("has no hidden size; give a number"));
  int compared = 0;
  for (const nlohmann::json& row : ReadGolden("auto.json")) {
    SCOPED_TRACE(row.dump());
    const CheckResult result = Check(row[0].dump(), {.world_size = row[2],
                                                     .flags = FlagsOf(row[1]),
                                                     .model = ReadModelFacts(row[3].dump(), "m"),
                                                     .total_steps = row[4].get<std::int64_t>()});
    if (row[5].is_null()) {
      EXPECT_THAT(Messages(result.errors), Contains(contradiction));
      continue;
    }
    EXPECT_THAT(Messages(result.errors), Not(Contains(contradiction)));
    ExpectResolved(result, row[5], "");
    ++compared;
  }
  EXPECT_GT(compared, 50);
}

// The file that the documentation of transformers offers for ZeRO-3, without offload and fp16.
TEST(AutoValuesTest, AUsualFileForTransformersIsAcceptedAsItIs) {
  const std::string text = R"({
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16,
             "hysteresis": 2, "min_loss_scale": 1},
    "optimizer": {"type": "AdamW",
                  "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                                 "warmup_num_steps": "auto"}},
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "none", "pin_memory": true},
        "offload_param": {"device": "none", "pin_memory": true},
        "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9,
        "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
        "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": true},
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 2000,
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "wall_clock_breakdown": false})";
  const CheckResult result =
      Check(text, {.world_size = 4,
                   .flags = {.learning_rate = 3e-4, .warmup_steps = 10.0, .bf16 = true},
                   .model = ModelFacts{"tiny", 64},
                   .total_steps = 100});
  EXPECT_THAT(Messages(result.errors), IsEmpty());
  EXPECT_TRUE(result.config.bf16.enabled);
  EXPECT_EQ(result.config.batch.train_batch_size, 32);
  EXPECT_EQ(ValueOf(result, "scheduler.params.warmup_num_steps"), 10);
  EXPECT_EQ(ValueOf(result, "scheduler.params.warmup_max_lr"), 3e-4);
}

TEST(AutoValuesTest, SayWhereTheyComeFromAndGoToTheRanks) {
  const std::string text = R"({"train_micro_batch_size_per_gpu": "auto",
      "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
      "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}})";
  const CheckResult result = Check(text, {.world_size = 2, .model = ModelFacts{"tiny", 64}});
  ASSERT_THAT(Messages(result.errors), IsEmpty());
  EXPECT_EQ(result.config.batch.train_batch_size, 16);
  EXPECT_EQ(result.config.optimizer.lr, 5e-5);
  EXPECT_EQ(OriginOf(result, "train_micro_batch_size_per_gpu"),
            "\"auto\" at ds.json:1:36: as transformers has it without "
            "--per_device_train_batch_size");
  EXPECT_EQ(OriginOf(result, "zero_optimization.reduce_bucket_size"),
            "\"auto\" at ds.json:3:63: the square of the hidden size, 64 in tiny");
  EXPECT_THAT(result.autos, ElementsAre("optimizer.params.lr", "train_micro_batch_size_per_gpu",
                                        "zero_optimization.reduce_bucket_size"));
  // A rank knows neither flags nor the model, and needs neither.
  const CheckResult on_rank = CheckConfig(ToDsConfigJson(result), "plain", 2);
  ASSERT_THAT(Messages(on_rank.errors), IsEmpty());
  EXPECT_EQ(on_rank.config.batch.train_batch_size, 16);
  EXPECT_EQ(on_rank.config.optimizer.lr, 5e-5);
  EXPECT_EQ(ValueOf(on_rank, "zero_optimization.reduce_bucket_size"), 4096);
}

TEST(AutoValuesTest, WithoutAModelBucketsAreTheRuntimesOwn) {
  const CheckResult result =
      Check(R"({"train_batch_size": 2, "zero_optimization": {"reduce_bucket_size": "auto"}})", {});
  EXPECT_TRUE(result.ok);
  EXPECT_FALSE(result.config.zero_optimization.reduce_bucket_size.has_value());
  EXPECT_THAT(OriginOf(result, "zero_optimization.reduce_bucket_size"), HasSubstr("no model"));
}

TEST(AutoValuesTest, TheBatchFollowsFromTheFileWhereItCan) {
  const CheckResult result = Check(
      R"({"train_batch_size": 12, "train_micro_batch_size_per_gpu": "auto"})", {.world_size = 3});
  EXPECT_EQ(result.config.batch.train_micro_batch_size_per_gpu, 4);
}

TEST(AutoValuesTest, AnAutoBatchNeedsNoKeyForItsMicroBatch) {
  for (const char* text :
       {R"({"train_batch_size": "auto"})",
        R"({"train_batch_size": "auto", "gradient_accumulation_steps": "auto"})",
        R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"})"}) {
    const CheckResult result = Check(text, {.world_size = 2});
    ASSERT_TRUE(result.ok) << text;
    EXPECT_EQ(result.config.batch.train_batch_size, 16) << text;
    EXPECT_EQ(result.config.batch.train_micro_batch_size_per_gpu, 8) << text;
  }
  const CheckResult given = Check(
      R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 3})", {.world_size = 2});
  EXPECT_EQ(given.config.batch.train_batch_size, 6);
}

TEST(AutoValuesTest, AllStepsMustBeKnown) {
  const std::string text = R"({"train_batch_size": 2, "scheduler": {"type": "WarmupLR",
      "params": {"total_num_steps": "auto"}}})";
  EXPECT_THAT(Messages(Check(text, {}).errors),
              Contains(HasSubstr("total_num_steps cannot be \"auto\": give the number of steps by "
                                 "--steps")));
}

TEST(FlagsFillOrAgreeTest, FillOpenKeysOfTheFile) {
  const JobFacts facts{
      .flags = {.per_device_train_batch_size = 3, .learning_rate = 0.25, .bf16 = true}};
  const CheckResult result = Check("{}", facts);
  ASSERT_THAT(Messages(result.errors), IsEmpty());
  EXPECT_EQ(result.config.batch.train_batch_size, 3);
  EXPECT_EQ(result.config.optimizer.lr, 0.25);
  EXPECT_TRUE(result.config.bf16.enabled);
  EXPECT_EQ(OriginOf(result, "optimizer.params.lr"), "--learning_rate");
  EXPECT_EQ(CheckConfig(ToDsConfigJson(result), "plain", 1).config.optimizer.lr, 0.25);
}

// The number of steps, and a share of them with it, is known once the data has been counted.
TEST(AutoValuesTest, AShareOfLaterStepsIsLeftToTheRun) {
  for (const char* const warmup : {"", R"("warmup_num_steps": "auto", )"}) {
    const std::string text = R"({"train_batch_size": 8, "scheduler": {"type": "WarmupDecayLR",
        "params": {)" + std::string(warmup) +
                             R"("total_num_steps": "auto"}}})";
    JobFacts facts{.flags = {.warmup_steps = 0.25}, .steps_come_later = true};
    const CheckResult before = Check(text, facts);
    ASSERT_THAT(Messages(before.errors), IsEmpty());
    EXPECT_EQ(ValueOf(before, "scheduler.params.warmup_num_steps"), "auto");
    facts.total_steps = 10;
    const CheckResult known = CheckConfig(ToDsConfigJson(before), "the run's", facts);
    ASSERT_THAT(Messages(known.errors), IsEmpty());
    const auto& schedule = std::get<WarmupLr>(known.config.scheduler);
    EXPECT_EQ(schedule.num_steps, 3);  // rounded up, as transformers does
    EXPECT_EQ(schedule.total_num_steps, 10);
  }
}

TEST(FlagsFillOrAgreeTest, AWarmUpOf0Steps) {
  const auto steps = [](const std::string& scheduler, const TrainingFlags& flags) {
    const CheckResult result =
        Check("{\"train_batch_size\": 8" + scheduler + "}", {.flags = flags, .total_steps = 9});
    EXPECT_THAT(Messages(result.errors), IsEmpty());
    return ValueOf(result, "scheduler.params.warmup_num_steps");
  };
  const auto of = [](const std::string& type, const std::string& params) {
    return R"(, "scheduler": {"type": ")" + type + R"(", "params": {)" + params + "}}";
  };
  const std::string total = R"("total_num_steps": "auto")";
  EXPECT_EQ(steps(of("WarmupDecayLR", total), {.warmup_steps = 0.0}), 1) << "as transformers";
  EXPECT_EQ(steps(of("linear", total), {.warmup_steps = 0.0}), 0);
  EXPECT_EQ(steps(of("linear", R"("warmup_num_steps": "auto", )" + total), {}), 0);
  EXPECT_EQ(steps(of("linear", total), {}), 0);
  EXPECT_EQ(steps("", {.warmup_steps = 0.0}), nullptr) << "nothing warms up anyway";
  EXPECT_EQ(steps(of("StepLR", R"("step_size": 3)"), {.warmup_steps = 0.0}), nullptr);
  const CheckResult other =
      Check(R"({"train_batch_size": 8)" + of("WarmupLR", R"("warmup_num_steps": 5)") + "}",
            {.flags = {.warmup_steps = 0.0}});
  EXPECT_THAT(Messages(other.errors), ElementsAre(HasSubstr("but --warmup_steps says 0")));
}

TEST(FlagsFillOrAgreeTest, OneBetaComesFromTheFileWithoutAFlag) {
  const std::string text =
      R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"betas": [0.8, 0.95]}}})";
  EXPECT_TRUE(Check(text, {.flags = {.adam_beta1 = 0.8}}).ok);
  EXPECT_TRUE(Check(text, {.flags = {.adam_beta2 = 0.95}}).ok);
  EXPECT_THAT(Messages(Check(text, {.flags = {.adam_beta2 = 0.9}}).errors),
              ElementsAre(HasSubstr("but --adam_beta2 says [0.8,0.9]")));
}

TEST(FlagsFillOrAgreeTest, MustNotContradictTheFile) {
  const std::string text = "{\"train_batch_size\": 8,\n\"gradient_clipping\": 0.5}";
  EXPECT_THAT(Messages(Check(text, {.flags = {.max_grad_norm = 1.0}}).errors),
              ElementsAre("ds.json:2:22: gradient_clipping is 0.5 here, but --max_grad_norm says "
                          "1.0: make them agree, or write \"auto\" here"));
  EXPECT_TRUE(Check(text, {.flags = {.max_grad_norm = 0.5}}).ok);
}

TEST(FlagsFillOrAgreeTest, AreCheckedLikeTheFile) {
  const auto errors = [](const TrainingFlags& flags) {
    return Messages(Check("{train_batch_size: 8}", {.flags = flags}).errors);
  };
  EXPECT_THAT(errors({.learning_rate = -1.0}),
              ElementsAre(HasSubstr("--learning_rate must be at least 0, not -1.0")));
  EXPECT_THAT(errors({.warmup_steps = 0.1}), ElementsAre(HasSubstr("give --steps")));
  const JobFacts later{.flags = {.warmup_steps = 0.1}, .steps_come_later = true};
  EXPECT_THAT(Messages(Check(R"({"train_batch_size": 8, "scheduler": {"type": "WarmupLR",
                                  "params": {"warmup_num_steps": 3}}})",
                             later)
                           .errors),
              ElementsAre(HasSubstr("is 3 here, but --warmup_steps is a share of all steps")));
  EXPECT_THAT(errors({.warmup_steps = -1.0}),
              ElementsAre(HasSubstr("--warmup_steps must be at least 0")));
  // A schedule that is not there cannot warm up.
  EXPECT_THAT(errors({.warmup_steps = 7.0}), ElementsAre(HasSubstr("needs scheduler.type")));
}

TEST(ReadModelFactsTest, FindsTheSizesThatLimitAPartition) {
  const ModelFacts facts = ReadModelFacts(
      R"({"n_layer": 12, "text_config": {"n_layer": 3}, "num_local_experts": 16})", "m");
  EXPECT_EQ(facts.layers, 12);
  EXPECT_EQ(facts.experts, 16);
  EXPECT_EQ(ReadModelFacts("{}", "m").layers, std::nullopt);
}

TEST(ReadModelFactsTest, AcceptsOnlySizes) {
  EXPECT_EQ(ReadModelFacts(R"({"hidden_size": 12})", "m").hidden_size, 12);
  EXPECT_EQ(ReadModelFacts(R"({"hidden_size": -1, "n_embd": 5})", "m").hidden_size, 5);
  for (const char* text :
       {"", "[]", "{}", R"({"hidden_size": "12"})", R"({"hidden_size": 1e9})",
        R"({"hidden_sizes": []})", R"({"text_config": 3})", R"({"hidden_size": 99999999999})"}) {
    EXPECT_EQ(ReadModelFacts(text, "m").hidden_size, std::nullopt) << text;
  }
}

}  // namespace
}  // namespace ds::config
