#include "runtime/config/sections/precision_section.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/config/check/choice.h"
#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/registry.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

// What lower_precision_safe_modules null stands for.
constexpr std::string_view kSafeModules[] = {"torch.nn.Linear", "torch.nn.Conv1d",
                                             "torch.nn.Conv2d", "torch.nn.Conv3d"};

// Optimizers that compute each element from that element's values alone.
constexpr std::string_view kElementwise[] = {"Adam", "AdamW", "SGD", "Adagrad", "Lion"};

// The key that asks for 16-bit master weights; empty when none does.
std::string MastersIn16Bit(const Values& values) {
  for (const std::string type : {"fp16", "bf16"}) {
    const std::string key = type + "." + type + "_master_weights_and_grads";
    if (values.Get(type + ".enabled") == true && values.Get(key) == true) return key;
  }
  return "";
}

void Fp16ExcludesBf16(RuleContext& context) {
  const Values& values = context.values;
  if (values.Get("fp16.enabled") == true && values.Get("bf16.enabled") == true) {
    context.issues.Error("bf16.enabled",
                         "fp16.enabled and bf16.enabled are both true: choose one precision",
                         values.PositionOf("bf16.enabled"));
  }
}

// Narrower sums would lose what the training dtype holds; fp16 and bf16 do not hold each other.
void GradientsAccumulateInTheTrainingDtypeOrWider(RuleContext& context) {
  const Values& values = context.values;
  const Json dtype = values.Get("data_types.grad_accum_dtype");
  if (dtype.is_null() || dtype == "fp32") return;
  const bool is_training_dtype = values.Get(dtype.get<std::string>() + ".enabled") == true;
  if (is_training_dtype) return;
  context.issues.Error("data_types.grad_accum_dtype",
                       "data_types.grad_accum_dtype " + dtype.dump() +
                           " does not hold what the training dtype holds: remove it or enable " +
                           dtype.get<std::string>(),
                       values.PositionOf("data_types.grad_accum_dtype"));
}

// As in DeepSpeed: another key has decided it.
void ParameterDtypeIsTheTrainingDtype(RuleContext& context) {
  const Values& values = context.values;
  constexpr const char* kKey = "data_types.param_dtype";
  const Json dtype = values.Get(kKey);
  if (dtype.is_null()) return;
  const std::string training = values.Get("fp16.enabled") == true   ? "fp16"
                               : values.Get("bf16.enabled") == true ? "bf16"
                                                                    : "fp32";
  if (dtype == training) return;
  context.issues.Error(kKey,
                       std::string(kKey) + " " + dtype.dump() + " is not the training dtype, " +
                           training + ": remove it, or set fp16.enabled or bf16.enabled",
                       values.PositionOf(kKey));
}

// A dynamic scale that may become 0 is none.
void LossScaleStaysPositive(RuleContext& context) {
  const Values& values = context.values;
  const bool is_dynamic =
      values.Get("fp16.enabled") == true && values.Get("fp16.loss_scale") == 0.0;
  if (!is_dynamic || values.Get("fp16.min_loss_scale").get<double>() > 0.0) return;
  context.issues.Error("fp16.min_loss_scale",
                       "fp16.min_loss_scale must be above 0 with dynamic loss scaling, not " +
                           ShortDump(values.Get("fp16.min_loss_scale")),
                       values.PositionOf("fp16.min_loss_scale"));
}

// The rule of stage 0 has no hysteresis, in DeepSpeed as here.
void HysteresisNeedsZero(RuleContext& context) {
  const Values& values = context.values;
  if (values.Get("fp16.enabled") != true || values.Get("zero_optimization.stage") != 0) return;
  for (const char* key : {"fp16.hysteresis", "fp16.consecutive_hysteresis"}) {
    if (IsDefault(*FindSetting(key), values.Get(key))) continue;
    context.issues.Warning(key,
                           std::string(key) +
                               " has no effect at ZeRO stage 0, where every overflow halves the "
                               "loss scale",
                           values.PositionOf(key));
  }
}

void PredivideFactorIsPositive(RuleContext& context) {
  const Values& values = context.values;
  constexpr const char* kKey = "gradient_predivide_factor";
  const Json factor = values.Get(kKey);
  if (factor.get<double>() <= 0.0) {
    context.issues.Error(kKey, std::string(kKey) + " must be above 0, not " + ShortDump(factor),
                         values.PositionOf(kKey));
  } else if (factor != 1.0 && (values.Get("prescale_gradients") == true ||
                               values.Get("gradient_allreduce_op") == "sum")) {
    context.issues.Warning(kKey,
                           std::string(kKey) +
                               " has no effect with prescale_gradients or gradient_allreduce_op "
                               "\"sum\"",
                           values.PositionOf(kKey));
  }
}

// In DeepSpeed, whose overlapped reduction needs to know the boundary in advance. A null there
// follows the stage and is no wish.
void UnmanagedAccumulationDoesNotOverlap(RuleContext& context) {
  const Values& values = context.values;
  if (values.Get("managed_gradient_accumulation") != false) return;
  if (values.Get("zero_optimization.overlap_comm") != true) return;
  if (values.Get("zero_optimization.stage") == 2) return;
  context.issues.Error("managed_gradient_accumulation",
                       "managed_gradient_accumulation false does not go with "
                       "zero_optimization.overlap_comm but at stage 2: switch one of them off",
                       values.PositionOf("managed_gradient_accumulation"));
}

// As in DeepSpeed.
void SumOverRanksIsNotForStage3(RuleContext& context) {
  const Values& values = context.values;
  if (values.Get("gradient_allreduce_op") != "sum" || values.Get("zero_optimization.stage") != 3) {
    return;
  }
  context.issues.Error("gradient_allreduce_op",
                       "gradient_allreduce_op \"sum\" is not for zero_optimization.stage 3: use "
                       "stage 2, or \"mean\" with a larger learning rate",
                       values.PositionOf("gradient_allreduce_op"));
}

// Masters in 16 bit: from ZeRO stage 1, as in DeepSpeed. Beside them DeepSpeed keeps fp32 state
// only where its Adam for the host runs (offload_optimizer); here every optimizer does that works
// element by element.
void SixteenBitMastersNeedZero(RuleContext& context) {
  const Values& values = context.values;
  const std::string key = MastersIn16Bit(values);
  if (key.empty()) return;
  if (values.Get("zero_optimization.stage") == 0) {
    context.issues.Error(key, key + " needs zero_optimization.stage 1 or more",
                         values.PositionOf(key));
  }
  const Json optimizer = values.Get("optimizer.type");
  if (std::find(std::begin(kElementwise), std::end(kElementwise), optimizer) ==
      std::end(kElementwise)) {
    context.issues.Error(
        key,
        key + " is not built for " + optimizer.dump() + ": use Adam, AdamW, SGD, Adagrad or Lion",
        values.PositionOf(key));
  }
}

// Without 16-bit masters there is no narrower dtype to keep it in.
void NarrowStatesNeedNarrowMasters(RuleContext& context) {
  const Values& values = context.values;
  if (!MastersIn16Bit(values).empty()) return;
  constexpr const char* kBf16 = "bf16.bf16_optimizer_states";
  if (values.Get("bf16.enabled") == true && values.Get(kBf16) == true) {
    context.issues.Error(kBf16, std::string(kBf16) + " needs bf16.bf16_master_weights_and_grads",
                         values.PositionOf(kBf16));
  }
  constexpr const char* kState = "optimizer.params.fp32_optimizer_states";
  if (values.Get(kState) == false) {
    context.issues.Warning(kState,
                           std::string(kState) +
                               " false has no effect without 16-bit master weights: the state has "
                               "their dtype",
                           values.PositionOf(kState));
  }
}

// Autocast is for fp32 weights, and DeepSpeed's ZeRO fails without a dtype.
void AutocastIsOnePrecision(RuleContext& context) {
  const Values& values = context.values;
  constexpr const char* kEnabled = "torch_autocast.enabled";
  if (values.Get(kEnabled) != true) return;
  for (const std::string type : {"fp16", "bf16"}) {
    if (values.Get(type + ".enabled") != true) continue;
    context.issues.Error(
        kEnabled,
        "torch_autocast.enabled and " + type + ".enabled are both true: choose one precision",
        values.PositionOf(kEnabled));
  }
  if (values.Get("torch_autocast.dtype").is_null()) {
    context.issues.Error("torch_autocast.dtype",
                         "torch_autocast.dtype is missing: write \"bfloat16\" or \"float16\"",
                         values.PositionOf(kEnabled));
  }
}

// A class that no model here can have asks for what would not happen.
void SafeModulesAreKnown(RuleContext& context) {
  const Values& values = context.values;
  constexpr const char* kKey = "torch_autocast.lower_precision_safe_modules";
  const Json modules = values.Get(kKey);
  if (values.Get("torch_autocast.enabled") != true || modules.is_null()) return;
  for (const Json& module : modules) {
    const bool known = module == "transformers.pytorch_utils.Conv1D" ||
                       std::find(std::begin(kSafeModules), std::end(kSafeModules), module) !=
                           std::end(kSafeModules);
    if (known) continue;
    context.issues.Error(kKey,
                         module.dump() +
                             " is not a module that the runtime knows: torch.nn.Linear, "
                             "torch.nn.Conv1d, Conv2d, Conv3d and "
                             "transformers.pytorch_utils.Conv1D are",
                         values.PositionOf(kKey));
  }
}

// Where state or gradients are sharded they go by shards, in DeepSpeed too.
void SparseGradientsAreForStage0(RuleContext& context) {
  const Values& values = context.values;
  constexpr const char* kKey = "sparse_gradients";
  if (values.Get(kKey) != true || values.Get("zero_optimization.stage") == 0) return;
  context.issues.Warning(kKey,
                         std::string(kKey) +
                             " has no effect from ZeRO stage 1 on: gradients go to "
                             "their shards",
                         values.PositionOf(kKey));
}

constexpr std::pair<std::string_view, DataType> kDataTypes[] = {
    {"fp32", DataType::kFp32}, {"fp16", DataType::kFp16}, {"bf16", DataType::kBf16}};
// torch_autocast has PyTorch's names, too.
constexpr std::pair<std::string_view, DataType> kAutocastTypes[] = {
    {"bfloat16", DataType::kBf16},       {"bf16", DataType::kBf16},
    {"torch.bfloat16", DataType::kBf16}, {"float16", DataType::kFp16},
    {"fp16", DataType::kFp16},           {"half", DataType::kFp16},
    {"torch.float16", DataType::kFp16}};

std::optional<DataType> OptionalDataType(const Json& name) {
  return name.is_null() ? std::nullopt : std::optional(ChosenOf(kDataTypes, name));
}

Fp16Config FillFp16(const Values& values) {
  return {.enabled = values.Get("fp16.enabled"),
          .auto_cast = values.Get("fp16.auto_cast"),
          .loss_scale = values.Get("fp16.loss_scale"),
          .initial_scale_power = values.Get("fp16.initial_scale_power"),
          .loss_scale_window = values.Get("fp16.loss_scale_window"),
          .hysteresis = values.Get("fp16.hysteresis"),
          .consecutive_hysteresis = values.Get("fp16.consecutive_hysteresis"),
          .min_loss_scale = values.Get("fp16.min_loss_scale"),
          .fp16_master_weights_and_grads = values.Get("fp16.fp16_master_weights_and_grads")};
}

TorchAutocastConfig FillTorchAutocast(const Values& values) {
  TorchAutocastConfig autocast{.enabled = values.Get("torch_autocast.enabled")};
  if (const Json dtype = values.Get("torch_autocast.dtype"); !dtype.is_null()) {
    autocast.dtype = ChosenOf(kAutocastTypes, dtype);
  }
  const Json modules = values.Get("torch_autocast.lower_precision_safe_modules");
  if (modules.is_null()) {
    for (const std::string_view name : kSafeModules) {
      autocast.lower_precision_safe_modules.emplace_back(name);
    }
  } else {
    autocast.lower_precision_safe_modules = modules.get<std::vector<std::string>>();
  }
  return autocast;
}

constexpr Rule kRules[] = {
    {"Fp16ExcludesBf16", {"fp16.enabled", "bf16.enabled"}, Fp16ExcludesBf16},
    {"GradientsAccumulateInTheTrainingDtypeOrWider",
     {"data_types.grad_accum_dtype", "bf16.enabled", "fp16.enabled"},
     GradientsAccumulateInTheTrainingDtypeOrWider},
    {"LossScaleStaysPositive",
     {"fp16.enabled", "fp16.loss_scale", "fp16.min_loss_scale"},
     LossScaleStaysPositive},
    {"HysteresisNeedsZero", {"fp16.enabled", "zero_optimization.stage"}, HysteresisNeedsZero},
    {"PredivideFactorIsPositive",
     {"gradient_predivide_factor", "prescale_gradients", "gradient_allreduce_op"},
     PredivideFactorIsPositive},
    {"UnmanagedAccumulationDoesNotOverlap",
     {"managed_gradient_accumulation", "zero_optimization.overlap_comm", "zero_optimization.stage"},
     UnmanagedAccumulationDoesNotOverlap},
    {"SumOverRanksIsNotForStage3",
     {"gradient_allreduce_op", "zero_optimization.stage"},
     SumOverRanksIsNotForStage3},
    {"SparseGradientsAreForStage0",
     {"sparse_gradients", "zero_optimization.stage"},
     SparseGradientsAreForStage0},
    {"ParameterDtypeIsTheTrainingDtype",
     {"data_types.param_dtype", "fp16.enabled", "bf16.enabled"},
     ParameterDtypeIsTheTrainingDtype},
    {"NarrowStatesNeedNarrowMasters",
     {"fp16.fp16_master_weights_and_grads", "bf16.bf16_master_weights_and_grads",
      "bf16.bf16_optimizer_states", "optimizer.params.fp32_optimizer_states"},
     NarrowStatesNeedNarrowMasters},
    {"AutocastIsOnePrecision",
     {"torch_autocast.enabled", "torch_autocast.dtype", "fp16.enabled", "bf16.enabled"},
     AutocastIsOnePrecision},
    {"SafeModulesAreKnown",
     {"torch_autocast.enabled", "torch_autocast.lower_precision_safe_modules"},
     SafeModulesAreKnown},
    {"SixteenBitMastersNeedZero",
     {"optimizer.type", "zero_optimization.stage", "fp16.fp16_master_weights_and_grads",
      "bf16.bf16_master_weights_and_grads"},
     SixteenBitMastersNeedZero},
};

}  // namespace

std::span<const Rule> PrecisionRules() { return kRules; }

void FillPrecision(const Values& values, DsConfig* config) {
  config->fp16 = FillFp16(values);
  config->bf16 = {.enabled = values.Get("bf16.enabled"),
                  .check_grad_overflow = values.Get("bf16.check_grad_overflow"),
                  .bf16_master_weights_and_grads = values.Get("bf16.bf16_master_weights_and_grads"),
                  .bf16_optimizer_states = values.Get("bf16.bf16_optimizer_states")};
  config->torch_autocast = FillTorchAutocast(values);
  config->managed_gradient_accumulation = values.Get("managed_gradient_accumulation");
  config->gradient_clipping = values.Get("gradient_clipping");
  config->communication_data_type = OptionalDataType(values.Get("communication_data_type"));
  config->grad_accum_dtype = OptionalDataType(values.Get("data_types.grad_accum_dtype"));
  config->buffer_dtype = OptionalDataType(values.Get("data_types.buffer_dtype"));
  config->gradient_allreduce_op = values.Get("gradient_allreduce_op") == "sum"
                                      ? GradientReduceOp::kSum
                                      : GradientReduceOp::kMean;
  config->prescale_gradients = values.Get("prescale_gradients");
  config->sparse_gradients = values.Get("sparse_gradients");
  config->gradient_predivide_factor = values.Get("gradient_predivide_factor");
}

}  // namespace ds::config
