#include "runtime/config/file/base_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/config/file/check_config.h"

namespace ds::config {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

constexpr char kBase[] = R"({
  "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
  "bf16": {"enabled": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 0.5, "weight_decay": 0.25}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 8}},
  "tensor_parallel": {"autotp_size": 2},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}})";

CheckResult CheckOverBase(const std::string& text, const TrainingFlags& flags = {},
                          const std::string& base = kBase) {
  return CheckConfig(text, "ds.json",
                     {.world_size = 4,
                      .flags = flags,
                      .base = BaseConfig{.name = "recipe big", .keys = Json::parse(base)}});
}

TEST(BaseConfigTest, AppliesWhereTheFileIsSilent) {
  const CheckResult result = CheckOverBase("{}");
  ASSERT_TRUE(result.ok) << result.errors.at(0).message;
  EXPECT_EQ(result.given, Json::parse(kBase));
  EXPECT_EQ(result.config.batch.train_batch_size, 16) << "2 groups of tensor ranks";
  EXPECT_EQ(result.origins["zero_optimization.stage"], "recipe big");
}

TEST(BaseConfigTest, ASectionOfTheFileReplacesTheFullSection) {
  const CheckResult result = CheckOverBase(R"({"zero_optimization": {"stage": 2}})");
  ASSERT_TRUE(result.ok) << result.errors.at(0).message;
  EXPECT_EQ(result.given["zero_optimization"].dump(), R"({"stage":2})");
  EXPECT_EQ(result.given["optimizer"]["params"]["lr"], 0.5);
  EXPECT_EQ(result.origins["zero_optimization.stage"], "ds.json:1:33");
}

TEST(BaseConfigTest, ASectionOfAutosIsTheFilesToo) {
  const CheckResult result = CheckOverBase(R"({"bf16": {"enabled": "auto"}})");
  ASSERT_TRUE(result.ok) << result.errors.at(0).message;
  EXPECT_FALSE(result.config.bf16.enabled);
  EXPECT_TRUE(CheckOverBase(R"({"bf16": null})").config.bf16.enabled);
}

TEST(BaseConfigTest, SizesOfTheBatchAreTakenTogether) {
  const CheckResult result = CheckOverBase(R"({"train_batch_size": 6})");
  ASSERT_TRUE(result.ok) << result.errors.at(0).message;
  EXPECT_EQ(result.config.batch.train_micro_batch_size_per_gpu, 3);
  const CheckResult flag = CheckOverBase("{}", {.per_device_train_batch_size = 1});
  ASSERT_TRUE(flag.ok) << flag.errors.at(0).message;
  EXPECT_EQ(flag.config.batch.train_batch_size, 4) << "1 x 2 accumulated x 2";
  const CheckResult whole =
      CheckOverBase("{}", {.gradient_accumulation_steps = 1},
                    R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1})");
  ASSERT_TRUE(whole.ok) << whole.errors.at(0).message;
  EXPECT_EQ(whole.config.batch.train_batch_size, 4);
}

TEST(BaseConfigTest, PrecisionsAreTakenTogether) {
  const CheckResult file = CheckOverBase(R"({"fp16": {"enabled": true}})");
  ASSERT_TRUE(file.ok) << file.errors.at(0).message;
  EXPECT_FALSE(file.config.bf16.enabled);
  const CheckResult flag = CheckOverBase("{}", {.fp16 = true});
  ASSERT_TRUE(flag.ok) << flag.errors.at(0).message;
  EXPECT_FALSE(flag.config.bf16.enabled);
}

TEST(BaseConfigTest, AFlagTakesTheKeyThatItFillsAndNoOther) {
  const CheckResult result =
      CheckOverBase("{}", {.learning_rate = 0.125, .warmup_steps = 2, .tp = std::int64_t{1}});
  ASSERT_TRUE(result.ok) << result.errors.at(0).message;
  EXPECT_EQ(result.given["optimizer"]["params"].dump(), R"({"weight_decay":0.25,"lr":0.125})");
  EXPECT_EQ(result.given["scheduler"]["params"]["warmup_num_steps"], 2);
  EXPECT_EQ(result.config.parallel.tensor, 1);
}

TEST(BaseConfigTest, AFlagOfOneBetaLeavesTheOther) {
  const char* const base = R"({"train_batch_size": 4, "optimizer": {"type": "AdamW",
      "params": {"betas": [0.8, 0.95]}}})";
  const auto betas = [&](const TrainingFlags& flags) {
    const CheckResult result = CheckOverBase("{}", flags, base);
    EXPECT_TRUE(result.ok) << result.errors.at(0).message;
    return result.resolved["optimizer"]["params"]["betas"].dump();
  };
  EXPECT_EQ(betas({.adam_beta1 = 0.7}), "[0.7,0.95]");
  EXPECT_EQ(betas({.adam_beta2 = 0.99}), "[0.8,0.99]");
  EXPECT_EQ(betas({.adam_beta1 = 0.7, .adam_beta2 = 0.99}), "[0.7,0.99]");
}

// The kind of fault that made --from_hf_trainer train at DeepSpeed's default rate.
TEST(BaseConfigTest, AFlagReplacesDerivedValues) {
  for (const char* const given : {"\"auto\"", "0.5"}) {
    const CheckResult result = CheckOverBase(
        "{}", {.learning_rate = 0.125},
        R"({"train_batch_size": 4, "optimizer": {"type": "AdamW", "params": {"lr": 0.5}},
            "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 9,
                          "warmup_max_lr": )" +
            std::string(given) + "}}}");
    ASSERT_TRUE(result.ok) << result.errors.at(0).message;
    EXPECT_EQ(std::get<WarmupLr>(result.config.scheduler).max_lr, 0.125) << given;
  }
}

TEST(BaseConfigTest, AFlagLeavesTheOtherKeysOfItsPrecision) {
  const CheckResult result = CheckOverBase("{}", {.fp16 = true},
                                           R"({"train_batch_size": 4, "bf16": {"enabled": "auto"},
      "fp16": {"enabled": "auto", "initial_scale_power": 11}})");
  ASSERT_TRUE(result.ok) << result.errors.at(0).message;
  EXPECT_TRUE(result.config.fp16.enabled);
  EXPECT_EQ(result.resolved["fp16"]["initial_scale_power"], 11);
}

// --recipe R --bf16=false trained in bf16.
TEST(BaseConfigTest, APrecisionThatAFlagSwitchesOffIsOff) {
  const CheckResult own = CheckOverBase("{}", {.bf16 = false});
  ASSERT_TRUE(own.ok) << own.errors.at(0).message;
  EXPECT_FALSE(own.config.bf16.enabled);
  EXPECT_FALSE(own.config.fp16.enabled);
  const CheckResult keys = CheckOverBase("{}", {.fp16 = false},
                                         R"({"train_batch_size": 4, "fp16": {"enabled": true,
      "initial_scale_power": 11}})");
  ASSERT_TRUE(keys.ok) << keys.errors.at(0).message;
  EXPECT_FALSE(keys.config.fp16.enabled);
  const CheckResult other = CheckOverBase("{}", {.fp16 = false});
  ASSERT_TRUE(other.ok) << other.errors.at(0).message;
  EXPECT_TRUE(other.config.bf16.enabled);
}

TEST(BaseConfigTest, APrecisionThatAFlagSwitchesOffIsOffInAutocastToo) {
  for (const auto& [dtype, is_bf16] :
       {std::pair("bfloat16", true), std::pair("torch.bfloat16", true), std::pair("bf16", true),
        std::pair("float16", false), std::pair("half", false)}) {
    const std::string base = std::string(R"({"train_batch_size": 4, "torch_autocast":
        {"enabled": true, "dtype": ")") +
                             dtype + "\"}}";
    const CheckResult bf16 = CheckOverBase("{}", {.bf16 = false}, base);
    ASSERT_TRUE(bf16.ok) << bf16.errors.at(0).message;
    EXPECT_EQ(bf16.config.torch_autocast.enabled, !is_bf16) << dtype;
    const CheckResult fp16 = CheckOverBase("{}", {.fp16 = false}, base);
    ASSERT_TRUE(fp16.ok) << fp16.errors.at(0).message;
    EXPECT_EQ(fp16.config.torch_autocast.enabled, is_bf16) << dtype;
  }
}

TEST(BaseConfigTest, APrecisionOfTheFileIsNotSwitchedOffInSilence) {
  const CheckResult result = CheckOverBase(R"({"bf16": {"enabled": true}})", {.bf16 = false});
  ASSERT_FALSE(result.ok);
  EXPECT_THAT(result.errors.at(0).message,
              HasSubstr("bf16.enabled is true here, but --bf16 says false"));
}

TEST(BaseConfigTest, ContradictionsOfOneSourceAreFound) {
  const BaseConfig base{.name = "its ds_config",
                        .keys = Json::parse(R"({"gradient_clipping": 0.5, "optimizer": {"params":
                            {"lr": 0.25, "eps": "auto"}}, "unknown": 1})")};
  EXPECT_TRUE(
      FindContradictions(base, {.flags = {.learning_rate = 0.25, .adam_epsilon = 1.0}}).empty());
  const auto found =
      FindContradictions(base, {.flags = {.learning_rate = 0.5, .max_grad_norm = 0.75}});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_THAT(found[0].message, HasSubstr("optimizer.params.lr is 0.25 here, but --learning_rate"));
}

TEST(BaseConfigTest, AFlagStillContradictsTheFile) {
  const CheckResult result = CheckOverBase(
      R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.25}}})", {.learning_rate = 0.125});
  EXPECT_THAT(result.errors.at(0).message, HasSubstr("--learning_rate says 0.125"));
}

TEST(BaseConfigTest, OnlyTheFilesMistakeIsAnError) {
  const CheckResult result = CheckOverBase(R"({"bf16": {"enabled": "yes"}})");
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_THAT(result.errors.at(0).message, HasSubstr("ds.json:1:"));
}

TEST(BaseConfigTest, ErrorsOfTheBaseNameIt) {
  const CheckResult result =
      CheckOverBase("{}", {}, R"({"train_batch_size": 4, "zero_optimisation": {"stage": 3}})");
  ASSERT_FALSE(result.ok);
  EXPECT_THAT(result.errors.at(0).message,
              HasSubstr("recipe big: unknown key zero_optimisation; did you mean"));
}

TEST(BaseConfigTest, FlagsOfAResumeReplaceKeysOfTheConfig) {
  const Json config = Json::parse(R"({"optimizer": {"type": "AdamW", "params": {"lr": 1, "eps": 2}},
                                      "scheduler": {"params": {"warmup_num_steps": 3}},
                                      "tensor_parallel": {"autotp_size": 2}})");
  EXPECT_EQ(DropFlagKeys(config, {}), config);
  EXPECT_EQ(DropFlagKeys(Json::parse(R"({"bf16": {"enabled": true}})"), {.bf16 = false}),
            Json::object());
  const Json left =
      DropFlagKeys(config, {.learning_rate = 7.0, .warmup_steps = 8.0, .tp = 1, .sp = 2});
  EXPECT_EQ(left, Json::parse(R"({"optimizer": {"type": "AdamW", "params": {"eps": 2}}})"));
}

}  // namespace
}  // namespace ds::config
