#include "runtime/config/sections/sections.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/keys/registry.h"
#include "runtime/config/sections/optimizer_section.h"
#include "runtime/config/sections/parallel_section.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

// Returns the enumerator for `name`, a choice of the registry.
template <typename Enum, std::size_t N>
Enum ChosenOf(const std::pair<std::string_view, Enum> (&choices)[N], const Json& name) {
  for (const auto& [known, value] : choices) {
    if (name == known) return value;
  }
  CheckFailed(__FILE__, __LINE__, "a choice of the registry", name.dump());
}

// The value of lower_precision_safe_modules where it is null.
constexpr std::string_view kSafeModules[] = {"torch.nn.Linear", "torch.nn.Conv1d",
                                             "torch.nn.Conv2d", "torch.nn.Conv3d"};

// Returns the key that requests 16-bit master weights; empty if none does.
Key MastersIn16Bit(const Values& values) {
  constexpr std::pair<Key, Key> kSwitches[] = {
      {keys::kFp16Enabled, keys::kFp16Fp16MasterWeightsAndGrads},
      {keys::kBf16Enabled, keys::kBf16Bf16MasterWeightsAndGrads}};
  for (const auto& [type, masters] : kSwitches) {
    if (values.Get(type) == true && values.Get(masters) == true) return masters;
  }
  return {};
}

void CheckOneTrainingDtype(RuleContext& context) {
  const Values& values = context.values;
  if (values.Get(keys::kFp16Enabled) == true && values.Get(keys::kBf16Enabled) == true) {
    context.issues.Error(keys::kBf16Enabled,
                         "fp16.enabled and bf16.enabled are both true: choose one precision",
                         values.PositionOf(keys::kBf16Enabled));
  }
}

// Narrower sums would lose precision of the training dtype; neither fp16 nor bf16 contains the
// other.
void CheckAccumulationDtype(RuleContext& context) {
  const Values& values = context.values;
  const Json dtype = values.Get(keys::kDataTypesGradAccumDtype);
  if (dtype.is_null() || dtype == "fp32") return;
  const bool is_training_dtype =
      values.Get(dtype == "fp16" ? keys::kFp16Enabled : keys::kBf16Enabled) == true;
  if (is_training_dtype) return;
  context.issues.Error(keys::kDataTypesGradAccumDtype,
                       "data_types.grad_accum_dtype " + dtype.dump() +
                           " has less range than the training dtype: remove it or enable " +
                           dtype.get<std::string>(),
                       values.PositionOf(keys::kDataTypesGradAccumDtype));
}

// Other keys decide the parameter dtype, as in DeepSpeed.
void CheckParameterDtype(RuleContext& context) {
  const Values& values = context.values;
  constexpr Key kKey = keys::kDataTypesParamDtype;
  const Json dtype = values.Get(kKey);
  if (dtype.is_null()) return;
  const std::string training = values.Get(keys::kFp16Enabled) == true   ? "fp16"
                               : values.Get(keys::kBf16Enabled) == true ? "bf16"
                                                                        : "fp32";
  if (dtype == training) return;
  context.issues.Error(kKey,
                       std::string(kKey) + " " + dtype.dump() + " is not the training dtype, " +
                           training + ": remove it, or set fp16.enabled or bf16.enabled",
                       values.PositionOf(kKey));
}

// A dynamic scale that may become 0 is rejected.
void CheckLossScale(RuleContext& context) {
  const Values& values = context.values;
  const bool is_dynamic =
      values.Get(keys::kFp16Enabled) == true && values.Get(keys::kFp16LossScale) == 0.0;
  if (!is_dynamic || values.Get(keys::kFp16MinLossScale).get<double>() > 0.0) return;
  context.issues.Error(keys::kFp16MinLossScale,
                       "fp16.min_loss_scale must be above 0 with dynamic loss scaling, not " +
                           ShortDump(values.Get(keys::kFp16MinLossScale)),
                       values.PositionOf(keys::kFp16MinLossScale));
}

// The rule of stage 0 has no hysteresis, in DeepSpeed and here.
void CheckHysteresisStage(RuleContext& context) {
  const Values& values = context.values;
  if (values.Get(keys::kFp16Enabled) != true || values.Get(keys::kZeroOptimizationStage) != 0)
    return;
  for (const Key key : {keys::kFp16Hysteresis, keys::kFp16ConsecutiveHysteresis}) {
    if (IsDefault(*FindSetting(key), values.Get(key))) continue;
    context.issues.Warning(key,
                           std::string(key) +
                               " has no effect at ZeRO stage 0, where every overflow halves the "
                               "loss scale",
                           values.PositionOf(key));
  }
}

// DeepSpeed uses this dtype for reductions with sequence ranks only.
void CheckSequenceDtype(RuleContext& context) {
  constexpr Key kKey = keys::kSeqParallelCommunicationDataType;
  if (!context.IsChanged(kKey) || ReadParallel(context.values).sequence > 1) return;
  context.issues.Warning(kKey, std::string(kKey) + " has no effect without sequence ranks",
                         context.values.PositionOf(kKey));
}

void CheckPredivideFactor(RuleContext& context) {
  const Values& values = context.values;
  constexpr Key kKey = keys::kGradientPredivideFactor;
  const Json factor = values.Get(kKey);
  if (factor.get<double>() <= 0.0) {
    context.issues.Error(kKey, std::string(kKey) + " must be above 0, not " + ShortDump(factor),
                         values.PositionOf(kKey));
  } else if (factor != 1.0 && (values.Get(keys::kPrescaleGradients) == true ||
                               values.Get(keys::kGradientAllreduceOp) == "sum")) {
    context.issues.Warning(kKey,
                           std::string(kKey) +
                               " has no effect with prescale_gradients or gradient_allreduce_op "
                               "\"sum\"",
                           values.PositionOf(kKey));
  }
}

// Follows DeepSpeed, where the overlapped reduction must know the accumulation boundary in advance.
// A null overlap_comm follows the stage and is not a request.
void CheckUnmanagedAccumulation(RuleContext& context) {
  const Values& values = context.values;
  if (values.Get(keys::kManagedGradientAccumulation) != false) return;
  if (values.Get(keys::kZeroOptimizationOverlapComm) != true) return;
  if (values.Get(keys::kZeroOptimizationStage) == 2) return;
  context.issues.Error(keys::kManagedGradientAccumulation,
                       "managed_gradient_accumulation false cannot be combined with "
                       "zero_optimization.overlap_comm except at stage 2: switch one of them off",
                       values.PositionOf(keys::kManagedGradientAccumulation));
}

// DeepSpeed has the same rule.
void CheckGradientSumStage(RuleContext& context) {
  const Values& values = context.values;
  if (values.Get(keys::kGradientAllreduceOp) != "sum" ||
      values.Get(keys::kZeroOptimizationStage) != 3) {
    return;
  }
  context.issues.Error(keys::kGradientAllreduceOp,
                       "gradient_allreduce_op \"sum\" is not for zero_optimization.stage 3: use "
                       "stage 2, or \"mean\" with a larger learning rate",
                       values.PositionOf(keys::kGradientAllreduceOp));
}

// 16-bit masters require ZeRO stage 1 or higher, as in DeepSpeed. With them, DeepSpeed keeps fp32
// state only where its CPU Adam runs (offload_optimizer); here every elementwise optimizer does.
void CheckSixteenBitMasters(RuleContext& context) {
  const Values& values = context.values;
  const Key key = MastersIn16Bit(values);
  if (key.empty()) return;
  if (values.Get(keys::kZeroOptimizationStage) == 0) {
    context.Refuse(key, "needs zero_optimization.stage 1 or more");
  }
  const OptimizerType* const optimizer = OptimizerTypeOf(values);
  if (optimizer == nullptr || !optimizer->takes_narrow_masters) {
    context.Refuse(key, "is not built for " + values.Get(keys::kOptimizerType).dump() + ": use " +
                            ListOptimizers(&OptimizerType::takes_narrow_masters));
  }
}

// DeepSpeed allows bf16 state only with bf16 masters. Here it also works with fp32 masters, without
// losing updates; state in the masters' dtype is then fp32.
void CheckNarrowStates(RuleContext& context) {
  const Values& values = context.values;
  if (!MastersIn16Bit(values).empty()) return;  // 16-bit masters have the same requirement
  constexpr Key kBf16 = keys::kBf16Bf16OptimizerStates;
  const OptimizerType* const optimizer = OptimizerTypeOf(values);
  const bool rounds = optimizer != nullptr && optimizer->takes_narrow_masters;
  if (values.Get(keys::kBf16Enabled) == true && values.Get(kBf16) == true && !rounds) {
    context.Refuse(kBf16, "is not built for " + values.Get(keys::kOptimizerType).dump() + ": use " +
                              ListOptimizers(&OptimizerType::takes_narrow_masters));
  }
  constexpr Key kState = keys::kOptimizerParamsFp32OptimizerStates;
  if (values.Get(kState) == false) {
    context.issues.Warning(kState,
                           std::string(kState) +
                               " false has no effect without 16-bit master weights: the state has "
                               "their dtype",
                           values.PositionOf(kState));
  }
}

// torch_autocast also accepts PyTorch's names.
constexpr std::pair<std::string_view, DataType> kAutocastTypes[] = {
    {"bfloat16", DataType::kBf16},       {"bf16", DataType::kBf16},
    {"torch.bfloat16", DataType::kBf16}, {"float16", DataType::kFp16},
    {"fp16", DataType::kFp16},           {"half", DataType::kFp16},
    {"torch.float16", DataType::kFp16}};

// Autocast is for fp32 weights, or for weights in its own dtype, which bf16 can keep without a loss
// scale. DeepSpeed's ZeRO fails without a dtype.
void CheckAutocastDtype(RuleContext& context) {
  const Values& values = context.values;
  constexpr Key kEnabled = keys::kTorchAutocastEnabled;
  constexpr Key kDtype = keys::kTorchAutocastDtype;
  if (values.Get(kEnabled) != true) return;
  const Json dtype = values.Get(kDtype);
  if (values.Get(keys::kFp16Enabled) == true) {
    context.Refuse(kEnabled, "and fp16.enabled are both true: choose one precision");
  }
  if (dtype.is_null()) {
    context.issues.Error(kDtype,
                         "torch_autocast.dtype is missing: write \"bfloat16\" or \"float16\"",
                         values.PositionOf(kEnabled));
  } else if (values.Get(keys::kBf16Enabled) == true &&
             ChosenOf(kAutocastTypes, dtype) != DataType::kBf16) {
    context.Refuse(kDtype, dtype.dump() +
                               " and bf16.enabled are two precisions: write \"bfloat16\", or "
                               "switch one of them off");
  }
}

// A class that no model here can have would have no effect. A malformed name is an error even if
// autocast is off, as in DeepSpeed.
void CheckSafeModules(RuleContext& context) {
  const Values& values = context.values;
  constexpr Key kKey = keys::kTorchAutocastLowerPrecisionSafeModules;
  const Json modules = values.Get(kKey);
  const bool is_on = values.Get(keys::kTorchAutocastEnabled) == true;
  if (modules.is_null()) return;
  for (const Json& module : modules) {
    const bool known = (!is_on && module.is_string()) ||
                       module == "transformers.pytorch_utils.Conv1D" ||
                       std::find(std::begin(kSafeModules), std::end(kSafeModules), module) !=
                           std::end(kSafeModules);
    if (known) continue;
    context.issues.Error(kKey,
                         module.dump() +
                             " is not a supported module: torch.nn.Linear, torch.nn.Conv1d, "
                             "Conv2d, Conv3d and transformers.pytorch_utils.Conv1D are supported",
                         values.PositionOf(kKey));
  }
}

// Where state or gradients are sharded, gradients are reduced by shards, as in DeepSpeed.
void CheckSparseGradientsStage(RuleContext& context) {
  const Values& values = context.values;
  constexpr Key kKey = keys::kSparseGradients;
  if (values.Get(kKey) != true || values.Get(keys::kZeroOptimizationStage) == 0) return;
  context.issues.Warning(kKey,
                         std::string(kKey) +
                             " has no effect from ZeRO stage 1 on: gradients go to "
                             "their shards",
                         values.PositionOf(kKey));
}

constexpr std::pair<std::string_view, DataType> kDataTypes[] = {
    {"fp32", DataType::kFp32}, {"fp16", DataType::kFp16}, {"bf16", DataType::kBf16}};

std::optional<DataType> OptionalDataType(const Json& name) {
  return name.is_null() ? std::nullopt : std::optional(ChosenOf(kDataTypes, name));
}

Fp16Config FillFp16(const Values& values) {
  return {.enabled = values.Get(keys::kFp16Enabled),
          .auto_cast = values.Get(keys::kFp16AutoCast),
          .loss_scale = values.Get(keys::kFp16LossScale),
          .initial_scale_power = values.Get(keys::kFp16InitialScalePower),
          .loss_scale_window = values.Get(keys::kFp16LossScaleWindow),
          .hysteresis = values.Get(keys::kFp16Hysteresis),
          .consecutive_hysteresis = values.Get(keys::kFp16ConsecutiveHysteresis),
          .min_loss_scale = values.Get(keys::kFp16MinLossScale),
          .fp16_master_weights_and_grads = values.Get(keys::kFp16Fp16MasterWeightsAndGrads)};
}

TorchAutocastConfig FillTorchAutocast(const Values& values) {
  TorchAutocastConfig autocast{.enabled = values.Get(keys::kTorchAutocastEnabled)};
  if (const Json dtype = values.Get(keys::kTorchAutocastDtype); !dtype.is_null()) {
    autocast.dtype = ChosenOf(kAutocastTypes, dtype);
  }
  const Json modules = values.Get(keys::kTorchAutocastLowerPrecisionSafeModules);
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
    {"CheckOneTrainingDtype", {keys::kFp16Enabled, keys::kBf16Enabled}, CheckOneTrainingDtype},
    {"CheckAccumulationDtype",
     {keys::kDataTypesGradAccumDtype, keys::kBf16Enabled, keys::kFp16Enabled},
     CheckAccumulationDtype},
    {"CheckLossScale",
     {keys::kFp16Enabled, keys::kFp16LossScale, keys::kFp16MinLossScale},
     CheckLossScale},
    {"CheckHysteresisStage",
     {keys::kFp16Enabled, keys::kZeroOptimizationStage},
     CheckHysteresisStage},
    {"CheckSequenceDtype",
     {keys::kSeqParallelCommunicationDataType, keys::kSequenceParallelSize},
     CheckSequenceDtype},
    {"CheckPredivideFactor",
     {keys::kGradientPredivideFactor, keys::kPrescaleGradients, keys::kGradientAllreduceOp},
     CheckPredivideFactor},
    {"CheckUnmanagedAccumulation",
     {keys::kManagedGradientAccumulation, keys::kZeroOptimizationOverlapComm,
      keys::kZeroOptimizationStage},
     CheckUnmanagedAccumulation},
    {"CheckGradientSumStage",
     {keys::kGradientAllreduceOp, keys::kZeroOptimizationStage},
     CheckGradientSumStage},
    {"CheckSparseGradientsStage",
     {keys::kSparseGradients, keys::kZeroOptimizationStage},
     CheckSparseGradientsStage},
    {"CheckParameterDtype",
     {keys::kDataTypesParamDtype, keys::kFp16Enabled, keys::kBf16Enabled},
     CheckParameterDtype},
    {"CheckNarrowStates",
     {keys::kOptimizerType, keys::kBf16Bf16MasterWeightsAndGrads, keys::kBf16Bf16OptimizerStates,
      keys::kOptimizerParamsFp32OptimizerStates},
     CheckNarrowStates},
    {"CheckAutocastDtype",
     {keys::kTorchAutocastEnabled, keys::kTorchAutocastDtype, keys::kFp16Enabled,
      keys::kBf16Enabled},
     CheckAutocastDtype},
    {"CheckSafeModules",
     {keys::kTorchAutocastEnabled, keys::kTorchAutocastLowerPrecisionSafeModules},
     CheckSafeModules},
    {"CheckSixteenBitMasters",
     {keys::kOptimizerType, keys::kZeroOptimizationStage, keys::kFp16Fp16MasterWeightsAndGrads,
      keys::kBf16Bf16MasterWeightsAndGrads},
     CheckSixteenBitMasters},
};

}  // namespace

std::span<const Rule> PrecisionRules() { return kRules; }

bool PrecisionOmitsKey(const Values& values, Key key) {
  // DeepSpeed 0.19.8 rejects the key with any value; older versions read it.
  return key == keys::kSparseGradients && values.OriginOf(key) == "default";
}

void FillPrecision(const Values& values, DsConfig* config) {
  config->fp16 = FillFp16(values);
  config->bf16 = {.enabled = values.Get(keys::kBf16Enabled),
                  .check_grad_overflow = values.Get(keys::kBf16CheckGradOverflow),
                  .bf16_master_weights_and_grads = values.Get(keys::kBf16Bf16MasterWeightsAndGrads),
                  .bf16_optimizer_states = values.Get(keys::kBf16Bf16OptimizerStates)};
  config->torch_autocast = FillTorchAutocast(values);
  config->managed_gradient_accumulation = values.Get(keys::kManagedGradientAccumulation);
  config->gradient_clipping = values.Get(keys::kGradientClipping);
  constexpr Key kOfSequences = keys::kSeqParallelCommunicationDataType;
  const bool of_sequences = ReadParallel(values).sequence > 1 && values.IsGiven(kOfSequences);
  config->communication_data_type =
      OptionalDataType(values.Get(of_sequences ? kOfSequences : keys::kCommunicationDataType));
  config->grad_accum_dtype = OptionalDataType(values.Get(keys::kDataTypesGradAccumDtype));
  config->buffer_dtype = OptionalDataType(values.Get(keys::kDataTypesBufferDtype));
  config->gradient_allreduce_op = values.Get(keys::kGradientAllreduceOp) == "sum"
                                      ? GradientReduceOp::kSum
                                      : GradientReduceOp::kMean;
  config->prescale_gradients = values.Get(keys::kPrescaleGradients);
  config->sparse_gradients = values.Get(keys::kSparseGradients);
  config->memory_breakdown = values.Get(keys::kMemoryBreakdown);
  config->wall_clock_breakdown = values.Get(keys::kWallClockBreakdown);
  config->gradient_predivide_factor = values.Get(keys::kGradientPredivideFactor);
}

}  // namespace ds::config
