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
using ::testing::Not;

std::vector<std::string> PrecisionErrors(const std::string& members) {
  return Messages(CheckWith(members).errors);
}

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

TEST(PrecisionRules, Fp16ExcludesBf16) {
  EXPECT_THAT(PrecisionErrors(R"("fp16": {"enabled": true}, "bf16": {"enabled": true})"),
              ElementsAre(HasSubstr("both true: choose one precision")));
}

TEST(PrecisionRules, GradientsAccumulateInTheTrainingDtypeOrWider) {
  const auto with = [](const std::string& dtype, const std::string& rest) {
    return R"("data_types": {"grad_accum_dtype": ")" + dtype + "\"}" + rest;
  };
  EXPECT_THAT(PrecisionErrors(with("bf16", "")),
              ElementsAre(HasSubstr("remove it or enable bf16")));
  EXPECT_THAT(PrecisionErrors(with("fp16", R"(, "bf16": {"enabled": true})")),
              ElementsAre(HasSubstr("remove it or enable fp16")));
  EXPECT_THAT(PrecisionErrors(with("fp16", R"(, "fp16": {"enabled": true})")), IsEmpty());
  EXPECT_THAT(PrecisionErrors(with("bf16", R"(, "bf16": {"enabled": true})")), IsEmpty());
  const CheckResult wider = CheckWith(with("fp32", R"(, "communication_data_type": "bf16")"));
  EXPECT_EQ(wider.config.grad_accum_dtype, DataType::kFp32);
  EXPECT_EQ(wider.config.communication_data_type, DataType::kBf16);
}

TEST(PrecisionRules, ParameterDtypeIsTheTrainingDtype) {
  EXPECT_THAT(PrecisionErrors(R"("data_types": {"param_dtype": "bf16"})"),
              ElementsAre(HasSubstr("param_dtype \"bf16\" is not the training dtype, fp32")));
  EXPECT_THAT(
      PrecisionErrors(R"("data_types": {"param_dtype": "bf16"}, "bf16": {"enabled": true})"),
      IsEmpty());
  const CheckResult buffers = CheckWith(R"("data_types": {"buffer_dtype": "fp16"})");
  EXPECT_THAT(Messages(buffers.errors), IsEmpty());
  EXPECT_EQ(buffers.config.buffer_dtype, DataType::kFp16);
}

TEST(PrecisionRules, SparseGradientsAreForStage0) {
  const CheckResult result = CheckWith(R"("sparse_gradients": true)");
  EXPECT_TRUE(result.config.sparse_gradients);
  EXPECT_THAT(Messages(result.warnings), Not(Contains(HasSubstr("sparse_gradients"))));
  EXPECT_THAT(
      Messages(
          CheckWith(R"("sparse_gradients": true, "zero_optimization": {"stage": 1})").warnings),
      Contains(HasSubstr("sparse_gradients has no effect from ZeRO stage 1")));
}

TEST(PrecisionRules, LossScaleStaysPositive) {
  EXPECT_THAT(PrecisionErrors(R"("fp16": {"enabled": true, "min_loss_scale": 0})"),
              ElementsAre(HasSubstr("fp16.min_loss_scale must be above 0")));
  EXPECT_THAT(PrecisionErrors(R"("fp16": {"enabled": true, "min_loss_scale": 0, "loss_scale": 8})"),
              IsEmpty());
  EXPECT_THAT(PrecisionErrors(R"("fp16": {"enabled": true, "loss_scale_window": 0})"),
              ElementsAre(HasSubstr("must be at least 1")));
  EXPECT_THAT(PrecisionErrors(R"("fp16": {"enabled": true, "loss_scale": -1})"),
              ElementsAre(HasSubstr("must be between 0 and")));
  for (const char* key : {"loss_scale", "min_loss_scale"}) {
    const std::string scale = R"("fp16": {"enabled": true, ")" + std::string(key) + "\": ";
    EXPECT_THAT(PrecisionErrors(scale + "1e39}"),
                ElementsAre(HasSubstr("1.7014118346046923e+38, not 1e+39")));
    EXPECT_THAT(PrecisionErrors(scale + "1.7e38}"), IsEmpty()) << "a float holds it";
  }
  EXPECT_THAT(PrecisionErrors(R"("fp16": {"enabled": true, "loss_scale": true})"),
              ElementsAre(HasSubstr("must be a number")));
}

TEST(PrecisionRules, HysteresisNeedsZero) {
  const std::string fp16 = R"("fp16": {"enabled": true, "hysteresis": 3})";
  EXPECT_THAT(Messages(CheckWith(fp16).warnings),
              Contains(HasSubstr("fp16.hysteresis has no effect at ZeRO stage 0")));
  EXPECT_THAT(Messages(CheckWith(fp16 + R"(, "optimizer": {"type": "Adam"},
                                         "zero_optimization": {"stage": 1})")
                           .warnings),
              IsEmpty());
}

TEST(PrecisionRules, PredivideFactorIsPositive) {
  EXPECT_THAT(PrecisionErrors(R"("gradient_predivide_factor": 0)"),
              ElementsAre(HasSubstr("gradient_predivide_factor must be above 0, not 0")));
  EXPECT_EQ(CheckWith(R"("gradient_predivide_factor": 4)").config.gradient_predivide_factor, 4.0);
  EXPECT_THAT(
      Messages(CheckWith(R"("gradient_predivide_factor": 4, "prescale_gradients": true)").warnings),
      Contains(HasSubstr("gradient_predivide_factor has no effect")));
}

TEST(PrecisionRules, MemoryIsBrokenDownWhereAskedFor) {
  EXPECT_FALSE(CheckWith(R"("dump_state": false)").config.memory_breakdown);
  EXPECT_TRUE(CheckWith(R"("memory_breakdown": true)").config.memory_breakdown);
}

TEST(PrecisionRules, PhasesAreTimedWhereAskedFor) {
  EXPECT_FALSE(CheckWith(R"("memory_breakdown": true)").config.wall_clock_breakdown);
  EXPECT_TRUE(CheckWith(R"("wall_clock_breakdown": true)").config.wall_clock_breakdown);
}

TEST(PrecisionRules, UnmanagedAccumulationDoesNotOverlap) {
  const std::string unmanaged = R"("managed_gradient_accumulation": false)";
  const auto with = [&](const std::string& zero) {
    return PrecisionErrors(unmanaged + ", \"zero_optimization\": {" + zero + "}");
  };
  EXPECT_FALSE(CheckWith(unmanaged).config.managed_gradient_accumulation);
  EXPECT_THAT(
      with(R"("stage": 1, "overlap_comm": true)"),
      ElementsAre(HasSubstr("managed_gradient_accumulation false cannot be combined with")));
  EXPECT_THAT(with(R"("stage": 2, "overlap_comm": true)"), IsEmpty());
  EXPECT_THAT(with(R"("stage": 3)"), IsEmpty());
}

TEST(PrecisionRules, SumOverRanksIsNotForStage3) {
  const std::string sum = R"("gradient_allreduce_op": "sum", "zero_optimization": {"stage": )";
  EXPECT_THAT(PrecisionErrors(sum + "3}"),
              ElementsAre(HasSubstr("is not for zero_optimization.stage 3")));
  EXPECT_THAT(PrecisionErrors(sum + "2}"), IsEmpty());
}

TEST(PrecisionRules, SixteenBitMastersNeedZero) {
  const auto with = [](const std::string& type, const std::string& optimizer, int stage) {
    return "\"" + type + "\": {\"enabled\": true, \"" + type +
           "_master_weights_and_grads\": true}, \"optimizer\": {\"type\": \"" + optimizer +
           "\"}, \"zero_optimization\": {\"stage\": " + std::to_string(stage) + "}";
  };
  EXPECT_THAT(PrecisionErrors(with("bf16", "AdamW", 0)),
              ElementsAre(HasSubstr("bf16.bf16_master_weights_and_grads needs zero_optimization")));
  EXPECT_THAT(
      PrecisionErrors(with("fp16", "Lamb", 2)),
      ElementsAre(HasSubstr("fp16.fp16_master_weights_and_grads is not built for \"Lamb\"")));
  for (const char* optimizer : {"Adam", "AdamW", "SGD", "Adagrad", "Lion"}) {
    EXPECT_THAT(PrecisionErrors(with("bf16", optimizer, 1)), IsEmpty()) << optimizer;
  }
  EXPECT_TRUE(CheckWith(with("fp16", "Adam", 3)).config.fp16.fp16_master_weights_and_grads);
  EXPECT_TRUE(CheckWith(with("bf16", "Adam", 3)).config.bf16.bf16_master_weights_and_grads);
}

TEST(PrecisionRules, NarrowStatesNeedElements) {
  const std::string states = R"("bf16": {"enabled": true, "bf16_optimizer_states": true})";
  EXPECT_THAT(PrecisionErrors(states), IsEmpty());
  for (const char* optimizer : {"Lamb", "Muon"}) {
    EXPECT_THAT(PrecisionErrors(states + R"(, "optimizer": {"type": ")" + optimizer + R"("})"),
                ElementsAre(HasSubstr("bf16.bf16_optimizer_states is not built for")));
  }
  const std::string narrow =
      R"("optimizer": {"type": "Adam", "params": {"fp32_optimizer_states": false}})";
  EXPECT_THAT(Messages(CheckWith(narrow).warnings),
              Contains(HasSubstr("fp32_optimizer_states false has no effect")));
  const CheckResult both = CheckWith(narrow + R"(, "bf16": {"enabled": true,
      "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true},
      "zero_optimization": {"stage": 1})");
  EXPECT_THAT(Messages(both.errors), IsEmpty());
  EXPECT_THAT(Messages(both.warnings), IsEmpty());
  EXPECT_TRUE(both.config.bf16.bf16_optimizer_states);
  EXPECT_FALSE(both.config.optimizer.fp32_optimizer_states);
}

TEST(PrecisionRules, AutocastIsOnePrecision) {
  const std::string on = R"("torch_autocast": {"enabled": true, "dtype": "bfloat16"})";
  const CheckResult result = CheckWith(on);
  EXPECT_THAT(Messages(result.errors), IsEmpty());
  EXPECT_TRUE(result.config.torch_autocast.enabled);
  EXPECT_EQ(result.config.training_dtype(), DataType::kFp32);
  EXPECT_THAT(
      result.config.torch_autocast.lower_precision_safe_modules,
      ElementsAre("torch.nn.Linear", "torch.nn.Conv1d", "torch.nn.Conv2d", "torch.nn.Conv3d"));
  EXPECT_THAT(PrecisionErrors(on + R"(, "bf16": {"enabled": true})"), IsEmpty());
  EXPECT_THAT(PrecisionErrors(on + R"(, "fp16": {"enabled": true})"),
              ElementsAre(HasSubstr("torch_autocast.enabled and fp16.enabled are both true")));
  EXPECT_THAT(PrecisionErrors(R"("torch_autocast": {"enabled": true, "dtype": "half"},
                        "bf16": {"enabled": true})"),
              ElementsAre(HasSubstr("torch_autocast.dtype \"half\" and bf16.enabled are two")));
  EXPECT_THAT(PrecisionErrors(R"("torch_autocast": {"enabled": true})"),
              ElementsAre(HasSubstr("torch_autocast.dtype is missing")));
  for (const auto& [name, dtype] :
       {std::pair{"float16", DataType::kFp16}, std::pair{"half", DataType::kFp16},
        std::pair{"fp16", DataType::kFp16}, std::pair{"bf16", DataType::kBf16}}) {
    const CheckResult named =
        CheckWith(R"("torch_autocast": {"enabled": true, "dtype": ")" + std::string(name) + "\"}");
    EXPECT_THAT(Messages(named.errors), IsEmpty());
    EXPECT_EQ(named.config.torch_autocast.dtype, dtype);
  }
  EXPECT_THAT(PrecisionErrors(R"("torch_autocast": {"enabled": true, "dtype": "int8"})"),
              ElementsAre(HasSubstr("torch_autocast.dtype")));
}

TEST(PrecisionRules, SafeModulesAreKnown) {
  const auto with = [](const std::string& module) {
    return R"("torch_autocast": {"enabled": true, "dtype": "bfloat16",
        "lower_precision_safe_modules": [")" +
           module + "\"]}";
  };
  EXPECT_THAT(PrecisionErrors(with("torch.nn.Bilinear")),
              ElementsAre(HasSubstr("\"torch.nn.Bilinear\" is not a supported module")));
  const CheckResult known = CheckWith(with("transformers.pytorch_utils.Conv1D"));
  EXPECT_THAT(Messages(known.errors), IsEmpty());
  EXPECT_THAT(known.config.torch_autocast.lower_precision_safe_modules,
              ElementsAre("transformers.pytorch_utils.Conv1D"));
  for (const char* enabled : {"true", "false"}) {
    EXPECT_THAT(PrecisionErrors(R"("torch_autocast": {"dtype": "bfloat16", "enabled": )" +
                                std::string(enabled) + R"(, "lower_precision_safe_modules": [1]})"),
                ElementsAre(HasSubstr("1 is not a supported module")));
  }
  EXPECT_THAT(PrecisionErrors(R"("torch_autocast": {"enabled": false,
                  "lower_precision_safe_modules": ["torch.nn.Bilinear"]})"),
              IsEmpty());
}

}  // namespace
}  // namespace ds::config
