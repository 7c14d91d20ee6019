#include "runtime/config/file/check_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/base/files.h"
#include "tests/places.h"
#include "tests/unit/config/messages.h"

namespace ds::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CheckResult Check(std::string_view text, int world_size = 2) {
  return CheckConfig(text, "ds.json", world_size);
}

constexpr std::string_view kFull = R"({
  "train_batch_size": 32, // global
  "train_micro_batch_size_per_gpu": 4,
  "optimizer": {"type": "adam", "params": {"lr": 3e-4, "betas": [0.8, 0.99], "eps": 1e-6,
                "weight_decay": 0.1, "adam_w_mode": false, "bias_correction": false}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 1e-5, "warmup_num_steps": 50,
                "warmup_type": "linear"}},
  "bfloat16": {"enabled": true, "check_grad_overflow": false},
  "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8},
  "gradient_clipping": 0
})";

TEST(CheckConfigTest, FillsTheConfig) {
  const CheckResult result = Check(kFull);
  ASSERT_THAT(Messages(result.errors), IsEmpty());
  const DsConfig& config = result.config;
  EXPECT_EQ(config.batch.train_batch_size, 32);
  EXPECT_EQ(config.batch.train_micro_batch_size_per_gpu, 4);
  EXPECT_EQ(config.batch.gradient_accumulation_steps, 4);
  EXPECT_EQ(config.optimizer.lr, 3e-4);
  EXPECT_EQ(config.optimizer.weight_decay, 0.1);
  const auto& adam = std::get<AdamConfig>(config.optimizer.algorithm);
  EXPECT_EQ(adam.beta1, 0.8);
  EXPECT_EQ(adam.beta2, 0.99);
  EXPECT_EQ(adam.eps, 1e-6);
  EXPECT_FALSE(adam.adam_w_mode);
  EXPECT_FALSE(adam.bias_correction);
  const auto& warmup = std::get<WarmupLr>(config.scheduler);
  EXPECT_EQ(warmup.min_lr, 1e-5);
  EXPECT_EQ(warmup.max_lr, std::nullopt);
  EXPECT_EQ(warmup.num_steps, 50);
  EXPECT_EQ(warmup.type, WarmupType::kLinear);
  EXPECT_TRUE(config.bf16.enabled);
  EXPECT_FALSE(config.bf16.check_grad_overflow);
  EXPECT_EQ(config.zero_optimization.stage, 3);
  EXPECT_EQ(config.gradient_clipping, 0.0);
}

TEST(CheckConfigTest, DefaultsOfTheStructAreThoseOfTheRegistry) {
  const CheckResult result = Check(R"({"train_batch_size": 1})", 1);
  ASSERT_TRUE(result.ok);
  const DsConfig& read = result.config;
  const DsConfig plain;
  EXPECT_EQ(read.batch.train_micro_batch_size_per_gpu, plain.batch.train_micro_batch_size_per_gpu);
  EXPECT_EQ(read.batch.gradient_accumulation_steps, plain.batch.gradient_accumulation_steps);
  EXPECT_EQ(read.optimizer.lr, plain.optimizer.lr);
  EXPECT_EQ(read.optimizer.weight_decay, plain.optimizer.weight_decay);
  EXPECT_EQ(read.optimizer.algorithm, plain.optimizer.algorithm);
  EXPECT_EQ(read.optimizer.base_shapes, plain.optimizer.base_shapes);
  EXPECT_EQ(read.optimizer.fp32_optimizer_states, plain.optimizer.fp32_optimizer_states);
  EXPECT_TRUE(std::holds_alternative<ConstantRate>(read.scheduler));
  EXPECT_TRUE(std::holds_alternative<ConstantRate>(plain.scheduler));
  EXPECT_EQ(read.bf16.enabled, plain.bf16.enabled);
  EXPECT_EQ(read.bf16.check_grad_overflow, plain.bf16.check_grad_overflow);
  EXPECT_EQ(read.zero_optimization.stage, plain.zero_optimization.stage);
  EXPECT_EQ(read.gradient_clipping, plain.gradient_clipping);
  EXPECT_EQ(read.communication_data_type, plain.communication_data_type);
  EXPECT_EQ(read.grad_accum_dtype, plain.grad_accum_dtype);
}

TEST(CheckConfigTest, EveryValueNamesItsOrigin) {
  const CheckResult result = Check(kFull);
  const auto expect = [&](const char* key, auto value, const char* origin) {
    EXPECT_EQ(ValueOf(result, key), value) << key;
    EXPECT_EQ(OriginOf(result, key), origin);
  };
  expect("train_batch_size", 32, "ds.json:2:23");
  expect("gradient_accumulation_steps", 4,
         "derived from train_micro_batch_size_per_gpu, train_batch_size, world size 2");
  expect("bf16.enabled", true, "ds.json:8:27");
  expect("zero_optimization.reduce_bucket_size", 500000000, "ds.json:9:59");
  expect("fp16.enabled", false, "default");
  // Not built and at its default, and required but not given.
  EXPECT_EQ(OriginOf(result, "flops_profiler.profile_step"), "");
  EXPECT_EQ(OriginOf(result, "scheduler.params.total_num_steps"), "");
}

TEST(CheckConfigTest, ErrorsHaveKeyAndPosition) {
  const CheckResult result = Check(
      "{\"train_batch_size\": 8,\n"
      "  \"zero_optimization\": {\"stage\": 4}}");
  ASSERT_EQ(result.errors.size(), 1U);
  EXPECT_EQ(result.errors[0].key, "zero_optimization.stage");
  EXPECT_EQ(result.errors[0].line, 2);
  EXPECT_EQ(result.errors[0].column, 34);
}

TEST(CheckConfigTest, ReadsHjsonAsDeepSpeedDoes) {
  const CheckResult result = Check(
      "# no braces, no quotes\n"
      "train_batch_size: 32\n"
      "optimizer: {type: 'adam', params: {lr: 3e-4,},}\n"
      "tensorboard: {\n  job_name: run one\n}\n");
  ASSERT_THAT(Messages(result.errors), IsEmpty());
  EXPECT_EQ(result.config.batch.train_batch_size, 32);
  EXPECT_EQ(result.config.optimizer.lr, 3e-4);
  EXPECT_EQ(ValueOf(result, "tensorboard.job_name"), "run one");
  EXPECT_EQ(ToDsConfigJson(result),
            R"({"train_batch_size":32,"optimizer":{"type":"Adam","params":{"lr":0.0003}},)"
            R"("tensorboard":{"job_name":"run one"}})");
}

TEST(CheckConfigTest, RefusesATextTruncatedAnywhere) {
  for (std::size_t length = 0; length < kFull.size(); ++length) {
    const CheckResult result = Check(kFull.substr(0, length));
    EXPECT_FALSE(result.ok) << length;
    EXPECT_FALSE(result.errors.empty()) << length;
  }
}

// transformers' documentation has it in its example of ZeRO-3 with NVMe; DeepSpeed reads the other.
TEST(CheckConfigTest, TheDocumentationsNameOfThreadsIsTheirs) {
  const std::string nvme =
      R"("zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/n"}})";
  const CheckResult checked = CheckWith("\"aio\": {\"thread_count\": 2}, " + nvme);
  EXPECT_THAT(Messages(checked.errors), IsEmpty());
  EXPECT_EQ(ValueOf(checked, "aio.intra_op_parallelism"), 2);
}

TEST(CheckConfigTest, AutoIsTheDefaultOrFollowsFromTheFile) {
  const CheckResult result = Check(R"({"train_batch_size": "auto", "gradient_clipping": "auto",
      "train_micro_batch_size_per_gpu": 4, "pipeline": {"stages": "auto"},
      "optimizer": {"type": "AdamW",
      "params": {"lr": 0.5, "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
      "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto"}}})");
  ASSERT_THAT(Messages(result.errors), IsEmpty());
  EXPECT_EQ(ValueOf(result, "scheduler.params.warmup_max_lr"), 0.5);
  EXPECT_EQ(std::get<AdamConfig>(result.config.optimizer.algorithm).beta2, 0.999);
  EXPECT_EQ(result.config.batch.train_batch_size, 8);
  EXPECT_EQ(OriginOf(result, "gradient_clipping"), "\"auto\" at ds.json:1:51: the default");
}

TEST(CheckConfigTest, TheOldBooleanFormOfZeroIsAStage) {
  const CheckResult result = Check(R"({"train_batch_size": 8, "zero_optimization": true})");
  ASSERT_TRUE(result.ok);
  EXPECT_EQ(result.config.zero_optimization.stage, 1);
  EXPECT_EQ(ToDsConfigJson(result), R"({"train_batch_size":8,"zero_optimization":{"stage":1}})");
}

TEST(CheckConfigTest, ThePlainFormIsAcceptedAgainOnOtherWorldSizes) {
  const CheckResult first = Check(R"({"train_micro_batch_size_per_gpu": 4, // comment
      "gradient_accumulation_steps": "auto", "bfloat16": {"enabled": true}, "scheduler": null,
      "checkpoint": {"writer": {"data_parallel": null}}})");
  ASSERT_TRUE(first.ok);
  const std::string plain = ToDsConfigJson(first);
  EXPECT_EQ(plain, R"({"train_micro_batch_size_per_gpu":4,"bf16":{"enabled":true}})");
  const CheckResult second = Check(plain, 8);
  ASSERT_TRUE(second.ok);
  EXPECT_EQ(second.config.batch.train_batch_size, 32);
  EXPECT_EQ(ToDsConfigJson(second), plain);
}

TEST(CheckConfigTest, TheReportHasTheDocumentedShape) {
  const auto report = ToErrorReport(Check(R"({"train_batch_size": 8, "x": 1})"));
  EXPECT_EQ(report["ok"], false);
  EXPECT_EQ(report["errors"][0]["key"], "x");
  EXPECT_EQ(report["errors"][0]["message"],
            "ds.json:1:25: unknown key x (--ignore_unknown_keys ignores unknown keys)");
  EXPECT_TRUE(report["warnings"].is_array());
}

TEST(CheckConfigTest, TheReportIsUtf8ForAnyFileName) {
  const auto report = ToErrorReport(CheckConfig("{\xff", "d\xffs.json", 1));
  EXPECT_THAT(report.dump(), HasSubstr("'\\\\xff' is not UTF-8"));
}

TEST(CheckConfigTest, CommentsArePassedOverAnywhere) {
  const CheckResult result = Check(R"({"_comment": "a", "train_batch_size": 8, "#": 1,
      "zero_optimization": {"//stage": 3, "comment": {"x": 1}, "stage": 1},
      "origins": {"train_batch_size": "other.json:1:1"}})");
  EXPECT_THAT(Messages(result.errors), IsEmpty());
  EXPECT_EQ(ToDsConfigJson(result), R"({"train_batch_size":8,"zero_optimization":{"stage":1}})");
  EXPECT_EQ(OriginOf(result, "train_batch_size"), "ds.json:1:39");
}

TEST(CheckConfigTest, IgnoredKeysAreNotGiven) {
  const CheckResult result = CheckConfig(R"({"train_batch_size": 8,
      "bf16": {"enabled": true, "loss_scale": 2}})",
                                         "ds.json", JobFacts{.ignore_unknown_keys = true});
  EXPECT_EQ(result.given["bf16"], nlohmann::ordered_json({{"enabled", true}}));
}

TEST(CheckConfigTest, StepsThatComeLaterAreNoError) {
  const std::string text = R"({"train_batch_size": 8, "optimizer": {"type": "AdamW"},
      "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto",
                    "warmup_max_lr": 0.1}}})";
  EXPECT_THAT(Messages(Check(text).errors),
              ElementsAre(HasSubstr("give the number of steps by --steps")));
  const CheckResult later = CheckConfig(text, "ds.json", JobFacts{.steps_come_later = true});
  EXPECT_THAT(Messages(later.errors), IsEmpty());
  EXPECT_EQ(ValueOf(later, "scheduler.params.total_num_steps"), "auto");
  EXPECT_THAT(OriginOf(later, "scheduler.params.total_num_steps"),
              HasSubstr("the steps of the run, known when it starts"));
}

TEST(CheckConfigTest, TheDefaultConfigOfTheDemoIsAccepted) {
  const auto text = ReadFile(std::string(DS_SOURCE_DIR) + "/configs/default_ds_config.json");
  ASSERT_TRUE(text.ok()) << text.status().message();
  for (const int world_size : {1, 2, 8}) {
    const CheckResult result = CheckConfig(*text, "default", world_size);
    EXPECT_THAT(Messages(result.errors), IsEmpty());
    EXPECT_THAT(Messages(result.warnings), IsEmpty());
  }
}

TEST(CheckConfigTest, MessagesShowNoPositionsInATextThatDsrunWrote) {
  const auto error = [](bool is_generated) {
    return CheckConfig(R"({"train_batch_size": 0})", "the run's config",
                       JobFacts{.is_generated = is_generated})
        .errors.front()
        .message;
  };
  EXPECT_TRUE(error(false).starts_with("the run's config:1:22: ")) << error(false);
  EXPECT_TRUE(error(true).starts_with("the run's config: ")) << error(true);
}

}  // namespace
}  // namespace ds::config
