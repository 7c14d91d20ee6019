#include "runtime/config/file/section_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "runtime/config/file/check_config.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/keys/registry.h"
#include "tests/unit/config/messages.h"

namespace ds::config {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

template <typename Algorithm>
Algorithm ChosenAs(const CheckResult& result) {
  return std::get<Algorithm>(result.config.optimizer.algorithm);
}

TEST(RulesTest, HaveNamesOfTheirOwnAndReadExistingKeys) {
  std::set<std::string_view> names;
  for (const Rule& rule : AllRules()) {
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    for (const std::string_view key : rule.keys) {
      EXPECT_TRUE(key.empty() || FindSetting(key) != nullptr) << rule.name << " " << key;
    }
  }
}

TEST(RulesTest, ActivationCheckpointingFollowsTheRecomputation) {
  const std::string section =
      R"("activation_checkpointing": {"partition_activations": true, "cpu_checkpointing": true,
         "contiguous_memory_optimization": true, "number_checkpoints": 4,
         "synchronize_checkpoint_boundary": true, "profile": true})";
  const CheckResult checked = CheckWith(section);
  EXPECT_THAT(Messages(checked.errors), IsEmpty());
  EXPECT_TRUE(checked.config.activation_checkpointing.cpu_checkpointing);
  EXPECT_TRUE(checked.config.activation_checkpointing.synchronize_checkpoint_boundary);
  EXPECT_TRUE(checked.config.activation_checkpointing.profile);
  EXPECT_TRUE(checked.config.activation_checkpointing.partition_activations);
  EXPECT_TRUE(checked.config.activation_checkpointing.asked_for);
  EXPECT_EQ(checked.config.activation_checkpointing.buffered_parts, std::nullopt);
  EXPECT_THAT(Messages(checked.warnings),
              Contains(HasSubstr("contiguous_memory_optimization has no effect without tensor")));
  EXPECT_THAT(Messages(checked.warnings),
              Contains(HasSubstr("partition_activations has no effect without tensor")));
  const CheckResult cut = CheckConfig(
      R"({"train_batch_size": 8, "tensor_parallel": {"autotp_size": 2}, )" + section + "}",
      "ds.json", 2);
  EXPECT_EQ(cut.config.activation_checkpointing.buffered_parts, 4);
  const CheckResult number = CheckWith(R"("activation_checkpointing": {"number_checkpoints": 4})");
  EXPECT_TRUE(number.config.activation_checkpointing.asked_for);
  EXPECT_EQ(number.config.activation_checkpointing.buffered_parts, std::nullopt);
  EXPECT_THAT(Messages(number.warnings),
              Contains(HasSubstr("number_checkpoints has no effect while "
                                 "activation_checkpointing.contiguous_memory_optimization is")));
  const CheckResult defaults = CheckWith(
      R"("activation_checkpointing": {"partition_activations": false, "cpu_checkpointing": false,
         "number_checkpoints": null, "profile": false})");
  EXPECT_FALSE(defaults.config.activation_checkpointing.asked_for);
}

TEST(RulesTest, MonitorsWriteWhereTheConfigSays) {
  const CheckResult checked = CheckWith(
      R"("csv_monitor": {"enabled": true, "output_path": "logs", "job_name": "a"},
         "tensorboard": {"enabled": true, "output_path": "tb"})");
  EXPECT_THAT(Messages(checked.errors), IsEmpty());
  EXPECT_TRUE(checked.config.csv_monitor.enabled);
  EXPECT_EQ(checked.config.csv_monitor.output_path, "logs");
  EXPECT_EQ(checked.config.csv_monitor.job_name, "a");
  EXPECT_TRUE(checked.config.tensorboard.enabled);
  EXPECT_EQ(checked.config.tensorboard.output_path, "tb");
  EXPECT_EQ(checked.config.tensorboard.job_name, "DeepSpeedJobName");
  const CheckResult off = CheckWith(R"("csv_monitor": {"job_name": "a"})");
  EXPECT_FALSE(off.config.csv_monitor.enabled);
  EXPECT_THAT(Messages(off.warnings), Contains(HasSubstr("csv_monitor.job_name has no effect")));
}

TEST(RulesTest, DeprecatedNamesCarryTheirValue) {
  const auto zero = [](const std::string& members) {
    return CheckWith(R"("zero_optimization": {)" + members + "}");
  };
  const CheckResult carried = zero(R"("stage3_gather_fp16_weights_on_model_save": true)");
  EXPECT_TRUE(carried.ok);
  EXPECT_EQ(OriginOf(carried, "zero_optimization.stage3_gather_16bit_weights_on_model_save"),
            "ds.json:1:91 (zero_optimization.stage3_gather_fp16_weights_on_model_save)");
  // The value becomes that of the new name, which then answers for it.
  EXPECT_THAT(Messages(zero(R"("cpu_offload": true)").errors),
              ElementsAre(HasSubstr("offload_optimizer.device \"cpu\" needs zero_optimization")));
  EXPECT_THAT(Messages(zero(R"("cpu_offload": false)").warnings),
              Contains(HasSubstr("write zero_optimization.offload_optimizer.device: \"none\"")));
  EXPECT_THAT(
      Messages(zero(R"("cpu_offload": false, "offload_optimizer": {"device": "none"})").errors),
      ElementsAre(HasSubstr("is the old name of zero_optimization.offload_optimizer.device: give "
                            "only the new one")));
  // At its default the old name says nothing.
  EXPECT_THAT(Messages(CheckWith(R"("inference": {"mp_size": 1, "tp": {"tp_size": 1}})").errors),
              IsEmpty());
}

TEST(RulesTest, RefuseUnsupportedFeatures) {
  EXPECT_THAT(Messages(CheckWith(R"("amp": {"enabled": true})").errors),
              ElementsAre(HasSubstr("remove it or leave it at false")));
  EXPECT_THAT(Messages(CheckWith(R"("zero_optimization": {"cpu_offload": false})").errors),
              IsEmpty());
}

TEST(RulesTest, ReportKeysWithoutEffect) {
  const CheckResult result = CheckWith(R"("dump_state": true, "bf16": {"enabled": true})");
  EXPECT_TRUE(result.ok);
  EXPECT_THAT(Messages(result.warnings), Contains(HasSubstr("dump_state has no effect: ")));
  EXPECT_THAT(Messages(result.warnings), Not(Contains(HasSubstr("bf16"))));
}

TEST(RulesTest, BatchSizesAgree) {
  const CheckResult wrong = CheckWith(R"("train_micro_batch_size_per_gpu": 3)");
  ASSERT_EQ(wrong.errors.size(), 1u);
  EXPECT_EQ(wrong.errors[0].key, "train_batch_size");
  EXPECT_EQ(wrong.errors[0].line, 1);
  const CheckResult right = CheckWith(R"("gradient_accumulation_steps": 2)");
  EXPECT_EQ(right.config.batch.train_micro_batch_size_per_gpu, 2);
  EXPECT_EQ(OriginOf(right, "train_micro_batch_size_per_gpu"),
            "derived from gradient_accumulation_steps, train_batch_size, world size 2");
  // A batch size that is no number has been reported; nothing follows from it.
  EXPECT_EQ(CheckWith(R"("train_micro_batch_size_per_gpu": "x")").errors.size(), 1u);
}

TEST(RulesTest, OptimizerDefaultsToAdamW) {
  const CheckResult result = CheckWith(R"("optimizer": {"params": {"lr": 0.5}})");
  EXPECT_EQ(result.config.optimizer.algorithm, OptimizerAlgorithm(AdamConfig{}));
  EXPECT_EQ(OriginOf(result, "optimizer.type"), "default of the built-in trainer");
  EXPECT_THAT(Messages(result.warnings),
              ElementsAre(HasSubstr("AdamW with learning rate 0.5 is used")));
}

TEST(RulesTest, AdamWDecouplesWeightDecay) {
  const CheckResult adamw =
      CheckWith(R"("optimizer": {"type": "AdamW", "params": {"adam_w_mode": false}})");
  EXPECT_TRUE(ChosenAs<AdamConfig>(adamw).adam_w_mode);
  EXPECT_THAT(Messages(adamw.warnings), ElementsAre(HasSubstr("AdamW always decouples")));
  const CheckResult adam =
      CheckWith(R"("optimizer": {"type": "Adam", "params": {"adam_w_mode": false}})");
  EXPECT_FALSE(ChosenAs<AdamConfig>(adam).adam_w_mode);
  EXPECT_THAT(adam.warnings, IsEmpty());
}

TEST(RulesTest, OptimizersTakeTheirOwnParameters) {
  EXPECT_THAT(Messages(CheckWith(R"("optimizer": {"type": "Lion", "params": {"eps": 1e-6,
                                    "momentum": 0.5, "weight_decay": 0.1}})")
                           .errors),
              ElementsAre(HasSubstr("optimizer.params.eps is not a parameter of Lion: remove it"),
                          HasSubstr("optimizer.params.momentum is not a parameter of Lion")));
  const CheckResult sgd =
      CheckWith(R"("optimizer": {"type": "sgd", "params": {"momentum": 0.5, "nesterov": true}})");
  EXPECT_THAT(sgd.errors, IsEmpty());
  EXPECT_EQ(ChosenAs<SgdConfig>(sgd).momentum, 0.5);
}

// Files in the wild carry them, mostly at their defaults.
TEST(RulesTest, AcceptsKeysOfPyTorchsOptimizersWithoutEffect) {
  const CheckResult adam = CheckWith(R"("optimizer": {"type": "AdamW", "params": {
      "amsgrad": false, "maximize": false, "fused": true, "set_grad_none": false}})");
  EXPECT_THAT(adam.errors, IsEmpty());
  EXPECT_THAT(Messages(adam.warnings), ElementsAre(HasSubstr("fused has no effect"),
                                                   HasSubstr("set_grad_none has no effect")));
  EXPECT_THAT(
      Messages(CheckWith(R"("optimizer": {"type": "Adam", "params": {"amsgrad": true}})").errors),
      ElementsAre(HasSubstr("AMSGrad is not built")));
  EXPECT_THAT(
      Messages(CheckWith(R"("optimizer": {"type": "Lamb", "params": {"fused": true}})").errors),
      ElementsAre(HasSubstr("is not a parameter of Lamb")));
}

TEST(RulesTest, OptimizersHaveTheirOwnDefaults) {
  EXPECT_EQ(ChosenAs<SgdConfig>(CheckWith(R"("optimizer": {"type": "SGD"})")).momentum, 0.0);
  EXPECT_EQ(CheckWith(R"("optimizer": {"type": "Adagrad"})").config.optimizer.lr, 0.01);
  EXPECT_EQ(ChosenAs<AdagradConfig>(CheckWith(R"("optimizer": {"type": "Adagrad"})")).eps, 1e-10);
  const CheckResult adagrad =
      CheckWith(R"("optimizer": {"type": "Adagrad", "params": {"eps": "auto"}})");
  EXPECT_EQ(ChosenAs<AdagradConfig>(adagrad).eps, 1e-10);
  EXPECT_EQ(OriginOf(adagrad, "optimizer.params.eps"), "default of Adagrad");
}

TEST(RulesTest, TorchAdamWDecaysByDefault) {
  const auto decay = [](const std::string& type, const std::string& params) {
    const CheckResult result = CheckWith(R"("optimizer": {"type": ")" + type +
                                         R"(", "params": {"torch_adam": true)" + params + "}}");
    const auto written = ValueOf(result, "optimizer.params.weight_decay");
    EXPECT_EQ(written, result.config.optimizer.weight_decay) << "DeepSpeed has to read the same";
    return result.config.optimizer.weight_decay;
  };
  EXPECT_EQ(decay("AdamW", ""), 0.01);
  EXPECT_EQ(decay("AdamW", ", \"adam_w_mode\": false"), 0.01);
  EXPECT_EQ(decay("Adam", ""), 0.01);
  EXPECT_EQ(decay("Adam", ", \"weight_decay\": 0.5"), 0.5);
  EXPECT_EQ(decay("Adam", ", \"weight_decay\": 0"), 0.0);
  const auto quiet = [](const std::string& optimizer) {
    return CheckWith("\"optimizer\": " + optimizer).config.optimizer.weight_decay;
  };
  EXPECT_EQ(quiet(R"({"type": "Adam", "params": {"torch_adam": true, "adam_w_mode": false}})"),
            0.0);
  EXPECT_EQ(quiet(R"({"type": "AdamW", "params": {"torch_adam": true, "weight_decay": "auto"}})"),
            0.0);
  EXPECT_EQ(quiet(R"({"type": "AdamW", "params": {"torch_adam": false}})"), 0.0);
  EXPECT_EQ(quiet(R"({"type": "Muon", "params": {"torch_adam": true}})"), 0.0);
}

// But where a type differs from the others of its struct, as MuAdam does from AdamW.
TEST(RulesTest, EveryTypeOfOptimizerHasTheDefaultsOfItsStruct) {
  std::set<std::string> names;
  for (const OptimizerType& type : OptimizerTypes()) {
    names.emplace(type.name);
    if (type.name.starts_with("Mu") && type.name != "Muon") continue;
    const CheckResult result =
        CheckWith(R"("optimizer": {"type": ")" + std::string(type.name) + "\"}");
    ASSERT_TRUE(result.ok) << type.name;
    std::visit([&]<typename Chosen>(const Chosen& each) { EXPECT_EQ(each, Chosen{}) << type.name; },
               result.config.optimizer.algorithm);
  }
  const auto choices = nlohmann::json::parse(FindSetting(keys::kOptimizerType)->choices_json);
  EXPECT_EQ(names, choices.get<std::set<std::string>>());
}

TEST(RulesTest, MuonHasTwoRates) {
  const auto rates = [](const std::string& params) {
    const CheckResult muon =
        CheckWith(R"("optimizer": {"type": "Muon", "params": {)" + params + "}}");
    return std::pair(muon.config.optimizer.lr, ChosenAs<MuonConfig>(muon).adam_lr);
  };
  EXPECT_EQ(rates(""), std::pair(0.02, 3e-4));
  EXPECT_EQ(rates("\"lr\": 0.5"), std::pair(0.5, 0.5));
  EXPECT_EQ(rates("\"lr\": 0.5, \"adam_lr\": 0.1"), std::pair(0.5, 0.1));
  EXPECT_EQ(rates("\"muon_lr\": 0.25, \"lr\": 0.5"), std::pair(0.25, 0.5));
  EXPECT_EQ(rates("\"muon_lr\": 0, \"lr\": 0.5"), std::pair(0.0, 0.5));
}

TEST(RulesTest, NesterovNeedsMomentum) {
  for (const char* others : {"", ", \"momentum\": 0.9, \"dampening\": 0.1"}) {
    EXPECT_THAT(Messages(CheckWith(R"("optimizer": {"type": "SGD", "params": {"nesterov": true)" +
                                   std::string(others) + "}}")
                             .errors),
                ElementsAre(HasSubstr("nesterov needs optimizer.params.momentum above 0")));
  }
}

TEST(RulesTest, OneBitOptimizersTakeTheirOwnParameters) {
  const CheckResult lamb = CheckWith(R"("optimizer": {"type": "onebitlamb", "params": {
      "freeze_step": 7, "coeff_beta": 0.5, "factor_max": 3, "comm_backend_name": "mpi"}})");
  EXPECT_TRUE(lamb.ok);
  EXPECT_EQ(ChosenAs<OneBitLambConfig>(lamb).freeze_step, 7);
  EXPECT_EQ(ChosenAs<OneBitLambConfig>(lamb).coeff_beta, 0.5);
  EXPECT_EQ(ChosenAs<OneBitLambConfig>(lamb).factor_max, 3.0);
  EXPECT_THAT(Messages(CheckWith(R"("optimizer": {"type": "OneBitAdam", "params": {
                                    "var_freeze_step": 5}})")
                           .errors),
              ElementsAre(HasSubstr("var_freeze_step is not a parameter of OneBitAdam")));
}

TEST(RulesTest, MuOptimizersNeedBaseShapes) {
  const auto check = [](const std::string& type, const std::string& params) {
    return CheckWith(R"("optimizer": {"type": ")" + type + R"(", "params": {)" + params + "}}");
  };
  for (const char* type : {"MuAdam", "MuAdamW", "MuSGD"}) {
    EXPECT_THAT(Messages(check(type, "").errors),
                ElementsAre(HasSubstr("give optimizer.params.base_shapes")));
    const CheckResult given = check(type, R"("base_shapes": "base.bsh")");
    EXPECT_TRUE(given.ok);
    EXPECT_EQ(given.config.optimizer.base_shapes, "base.bsh");
  }
  // As the classes of torch.optim below them decay.
  EXPECT_FALSE(ChosenAs<AdamConfig>(check("MuAdam", R"("base_shapes": "b")")).adam_w_mode);
  EXPECT_TRUE(ChosenAs<AdamConfig>(check("MuAdamW", R"("base_shapes": "b")")).adam_w_mode);
  EXPECT_THAT(Messages(check("AdamW", R"("base_shapes": "b")").errors),
              ElementsAre(HasSubstr("base_shapes is not a parameter of AdamW")));
}

TEST(RulesTest, LambLimitsAreInOrder) {
  EXPECT_THAT(Messages(CheckWith(R"("optimizer": {"type": "OneBitLamb", "params": {
                                    "factor_min": 5, "min_coeff": 20}})")
                           .errors),
              UnorderedElementsAre(HasSubstr("factor_min is above optimizer.params.factor_max"),
                                   HasSubstr("min_coeff is above optimizer.params.max_coeff")));
}

TEST(RulesTest, UnusedParametersAreLookedForInStages1And2) {
  constexpr const char* kKey = "zero_optimization.ignore_unused_parameters";
  for (const int stage : {0, 1, 2, 3}) {
    const bool looks = stage == 1 || stage == 2;
    const auto result = CheckWith("\"zero_optimization\": {\"stage\": " + std::to_string(stage) +
                                  ", \"ignore_unused_parameters\": false}");
    EXPECT_THAT(Messages(result.errors), IsEmpty());
    EXPECT_EQ(result.config.zero_optimization.ignore_unused_parameters, !looks) << stage;
    EXPECT_EQ(OriginOf(result, kKey) == "derived from zero_optimization.stage", !looks) << stage;
  }
  EXPECT_TRUE(CheckWith("\"zero_optimization\": {\"stage\": 2}")
                  .config.zero_optimization.ignore_unused_parameters);
}

TEST(RulesTest, BudgetsOfStage3AreNumbersOfElements) {
  const auto of = [](const std::string& zero) {
    return CheckWith("\"zero_optimization\": {\"stage\": 3" + zero + "}").config.zero_optimization;
  };
  const ZeroConfig set = of(R"(, "stage3_prefetch_bucket_size": 7, "max_live_parameters": 1e4,
                                        "stage3_max_reuse_distance": 0,
                                        "param_persistence_threshold": 5,
                                        "stage3_model_persistence_threshold": 6)");
  EXPECT_EQ(set.prefetch_bucket_size, 7);
  EXPECT_EQ(set.param_persistence_threshold, 5);
  EXPECT_EQ(set.model_persistence_threshold, 6);
  EXPECT_EQ(set.max_live_parameters, 10'000);
  EXPECT_EQ(set.max_reuse_distance, 0);
  EXPECT_EQ(of(R"(, "reduce_bucket_size": 8)").reduce_bucket_size, 8);
  EXPECT_EQ(of(R"(, "allgather_bucket_size": 9)").allgather_bucket_size, 9);
  EXPECT_FALSE(of(R"(, "overlap_comm": false)").overlap_comm);
  EXPECT_TRUE(of(R"(, "overlap_comm": true)").overlap_comm);
  const ZeroConfig defaults = of("");
  EXPECT_FALSE(defaults.reduce_bucket_size || defaults.prefetch_bucket_size);
  EXPECT_FALSE(defaults.allgather_bucket_size);
  EXPECT_FALSE(defaults.param_persistence_threshold || defaults.model_persistence_threshold);
  EXPECT_FALSE(defaults.max_live_parameters || defaults.max_reuse_distance);
  // What is written counts, also where DeepSpeed would do the same without it.
  const ZeroConfig written = of(R"(, "reduce_bucket_size": 5e8,
      "stage3_prefetch_bucket_size": 50000000, "stage3_param_persistence_threshold": 1e5,
      "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9)");
  EXPECT_EQ(written.reduce_bucket_size, 500'000'000);
  EXPECT_EQ(written.prefetch_bucket_size, 50'000'000);
  EXPECT_EQ(written.param_persistence_threshold, 100'000);
  EXPECT_EQ(written.max_live_parameters, 1'000'000'000);
  EXPECT_EQ(written.max_reuse_distance, 1'000'000'000);
  EXPECT_THAT(
      Messages(CheckWith(R"("zero_optimization": {"stage3_max_live_parameters": -1})").errors),
      ::testing::SizeIs(1));
}

TEST(RulesTest, BetasAreTwoFractions) {
  for (const char* betas : {"[]", "[0.9]", "[0.9, 0.9, 0.9]", "[0.9, 1]", "[-0.1, 0.9]",
                            "[\"0.9\", 0.9]", "[null, 0.9]"}) {
    EXPECT_THAT(
        Messages(
            CheckWith(R"("optimizer": {"params": {"betas": )" + std::string(betas) + "}}").errors),
        ElementsAre(HasSubstr("optimizer.params.betas must be two numbers")))
        << betas;
  }
  EXPECT_EQ(
      ChosenAs<AdamConfig>(CheckWith(R"("optimizer": {"params": {"betas": [0, 0.5]}})")).beta1, 0);
}

}  // namespace
}  // namespace ds::config
