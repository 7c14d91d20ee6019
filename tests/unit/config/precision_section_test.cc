#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/config/file/check_config.h"
#include "tests/unit/config/messages.h"

namespace ds::config {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PrecisionRules, FillsFp16FromTheFile) {
  const CheckResult result = CheckWith(R"("fp16": {"enabled": true, "auto_cast": true,
      "initial_scale_power": 8, "loss_scale_window": 3, "hysteresis": 4,
      "consecutive_hysteresis": true, "min_loss_scale": 0.5}, "zero_optimization": {"stage": 1},
      "prescale_gradients": true, "gradient_allreduce_op": "SUM",
      "communication_data_type": "fp16", "data_types": {"grad_accum_dtype": "fp16"})");
  ASSERT_THAT(Messages(result.errors), IsEmpty());
  const DsConfig& config = result.config;
  EXPECT_EQ(config.training_dtype(), DataType::kFp16);
  EXPECT_TRUE(config.fp16.auto_cast);
  EXPECT_EQ(config.fp16.initial_scale_power, 8);
  EXPECT_EQ(config.fp16.loss_scale_window, 3);
  EXPECT_EQ(config.fp16.hysteresis, 4);
  EXPECT_TRUE(config.fp16.consecutive_hysteresis);
  EXPECT_EQ(config.fp16.min_loss_scale, 0.5);
  EXPECT_EQ(config.fp16.loss_scale, 0.0);
  EXPECT_TRUE(config.prescale_gradients);
  EXPECT_EQ(config.gradient_allreduce_op, GradientReduceOp::kSum);
  EXPECT_EQ(config.communication_data_type, DataType::kFp16);
  EXPECT_EQ(config.grad_accum_dtype, DataType::kFp16);
}

TEST(PrecisionRules, DefaultsOfTheStructAreThoseOfTheRegistry) {
  const DsConfig read = CheckWith(R"("fp16": {})").config;
  const DsConfig plain;
  EXPECT_EQ(read.fp16.enabled, plain.fp16.enabled);
  EXPECT_EQ(read.fp16.auto_cast, plain.fp16.auto_cast);
  EXPECT_EQ(read.fp16.loss_scale, plain.fp16.loss_scale);
  EXPECT_EQ(read.fp16.initial_scale_power, plain.fp16.initial_scale_power);
  EXPECT_EQ(read.fp16.loss_scale_window, plain.fp16.loss_scale_window);
  EXPECT_EQ(read.fp16.hysteresis, plain.fp16.hysteresis);
  EXPECT_EQ(read.fp16.consecutive_hysteresis, plain.fp16.consecutive_hysteresis);
  EXPECT_EQ(read.fp16.min_loss_scale, plain.fp16.min_loss_scale);
  EXPECT_EQ(read.gradient_allreduce_op, plain.gradient_allreduce_op);
  EXPECT_EQ(read.prescale_gradients, plain.prescale_gradients);
  EXPECT_EQ(read.gradient_predivide_factor, plain.gradient_predivide_factor);
}

TEST(PrecisionRules, FillsKeysThatStandAlone) {
  EXPECT_EQ(CheckWith(R"("data_types": {"grad_accum_dtype": "fp32"})").config.grad_accum_dtype,
            DataType::kFp32);
  EXPECT_EQ(CheckWith(R"("communication_data_type": "bf16")").config.communication_data_type,
            DataType::kBf16);
  EXPECT_EQ(CheckWith(R"("data_types": {"buffer_dtype": "fp16"})").config.buffer_dtype,
            DataType::kFp16);
  EXPECT_TRUE(CheckWith(R"("sparse_gradients": true)").config.sparse_gradients);
  EXPECT_EQ(CheckWith(R"("gradient_predivide_factor": 4)").config.gradient_predivide_factor, 4.0);
  EXPECT_FALSE(CheckWith(R"("dump_state": false)").config.memory_breakdown);
  EXPECT_FALSE(CheckWith(R"("memory_breakdown": true)").config.wall_clock_breakdown);
  EXPECT_TRUE(CheckWith(R"("memory_breakdown": true)").config.memory_breakdown);
  EXPECT_TRUE(CheckWith(R"("wall_clock_breakdown": true)").config.wall_clock_breakdown);
  EXPECT_FALSE(
      CheckWith(R"("managed_gradient_accumulation": false)").config.managed_gradient_accumulation);
}

TEST(PrecisionRules, FillsSixteenBitMastersAndStates) {
  const auto with = [](const std::string& type, const std::string& more) {
    const CheckResult result =
        CheckWith("\"" + type + "\": {\"enabled\": true, \"" + type +
                  "_master_weights_and_grads\": true" + more +
                  R"(}, "optimizer": {"type": "Adam", "params": {"fp32_optimizer_states": false}},
                     "zero_optimization": {"stage": 3})");
    EXPECT_THAT(Messages(result.errors), IsEmpty());
    return result.config;
  };
  EXPECT_TRUE(with("fp16", "").fp16.fp16_master_weights_and_grads);
  const DsConfig bf16 = with("bf16", R"(, "bf16_optimizer_states": true)");
  EXPECT_TRUE(bf16.bf16.bf16_master_weights_and_grads);
  EXPECT_TRUE(bf16.bf16.bf16_optimizer_states);
  EXPECT_FALSE(bf16.optimizer.fp32_optimizer_states);
}

TEST(PrecisionRules, FillsAutocast) {
  const CheckResult result =
      CheckWith(R"("torch_autocast": {"enabled": true, "dtype": "bfloat16"})");
  EXPECT_TRUE(result.config.torch_autocast.enabled);
  EXPECT_EQ(result.config.training_dtype(), DataType::kFp32);
  EXPECT_THAT(
      result.config.torch_autocast.lower_precision_safe_modules,
      ElementsAre("torch.nn.Linear", "torch.nn.Conv1d", "torch.nn.Conv2d", "torch.nn.Conv3d"));
  for (const auto& [name, dtype] :
       {std::pair{"float16", DataType::kFp16}, std::pair{"half", DataType::kFp16},
        std::pair{"fp16", DataType::kFp16}, std::pair{"bf16", DataType::kBf16}}) {
    const CheckResult named =
        CheckWith(R"("torch_autocast": {"enabled": true, "dtype": ")" + std::string(name) + "\"}");
    EXPECT_THAT(Messages(named.errors), IsEmpty());
    EXPECT_EQ(named.config.torch_autocast.dtype, dtype);
  }
}

TEST(PrecisionRules, FillsSafeModules) {
  const CheckResult known = CheckWith(R"("torch_autocast": {"enabled": true, "dtype": "bfloat16",
      "lower_precision_safe_modules": ["transformers.pytorch_utils.Conv1D"]})");
  EXPECT_THAT(known.config.torch_autocast.lower_precision_safe_modules,
              ElementsAre("transformers.pytorch_utils.Conv1D"));
}

}  // namespace
}  // namespace ds::config
