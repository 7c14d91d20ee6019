#include "runtime/config/rules.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/registry.h"
#include "runtime/config/sections/auto_values.h"
#include "runtime/config/sections/batch_sizes.h"
#include "runtime/config/sections/elasticity_section.h"
#include "runtime/config/sections/feature_rules.h"
#include "runtime/config/sections/optimizer_rules.h"
#include "runtime/config/sections/precision_rules.h"
#include "runtime/config/sections/scheduler_section.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kTrainBatch = "train_batch_size";
constexpr std::string_view kMicroBatch = "train_micro_batch_size_per_gpu";
constexpr std::string_view kAccumulation = "gradient_accumulation_steps";

// What to do instead of giving `value`, or "" when what it asks for is built.
std::string WayOut(const Setting& setting, const Json& value) {
  // A switch answers for all keys of its feature.
  const bool answers = setting.state == SettingState::kRefused && setting.switch_key.empty();
  if (!answers || IsInList(setting.harmless_json, value)) return "";
  const std::string default_value(setting.default_json);
  return setting.required ? "remove it" : "remove it or leave it at " + default_value;
}

// What the value of a renamed key is called now.
Json CarriedValue(const Setting& setting, const Json& value) {
  const Json carries = Json::parse(setting.carries_json);
  const auto found = carries.find(value.dump());
  return found == carries.end() ? value : *found;
}

// A deprecated name stands for the new one, which may then not be given as well.
void DeprecatedNamesCarryTheirValue(RuleContext& context) {
  Values& values = context.values;
  std::vector<std::pair<std::string, Values::Entry>> renamed;
  for (const auto& [key, entry] : values.entries()) {
    const bool applies = entry.given && !entry.broken &&
                         entry.setting->state == SettingState::kRenamed &&
                         !IsDefault(*entry.setting, entry.value);
    if (applies) renamed.emplace_back(key, entry);
  }
  for (auto& [key, entry] : renamed) {
    const std::string new_key(entry.setting->renamed_to);
    if (values.IsGiven(new_key) || values.IsBroken(new_key)) {
      context.issues.Error(key, key + " is the old name of " + new_key + ": give only the new one",
                           entry.position);
      continue;
    }
    const Json value = CarriedValue(*entry.setting, entry.value);
    context.issues.Warning(
        key, key + " is deprecated: write " + new_key + ": " + value.dump() + " instead",
        entry.position);
    values.Carry(new_key, value, entry);
  }
}

// A feature is not built, and a key asks for it.
void RefuseWhatIsNotBuilt(RuleContext& context) {
  for (const auto& [key, entry] : context.values.entries()) {
    if (!entry.given || entry.broken || IsDefault(*entry.setting, entry.value)) continue;
    const std::string way_out = WayOut(*entry.setting, entry.value);
    if (way_out.empty()) continue;
    std::string message = key;
    message += " " + ShortDump(entry.value) + " is not supported yet (";
    message += std::string(entry.setting->reason) + "): " + way_out;
    context.issues.Error(key, message, entry.position);
  }
}

// A key is given that changes nothing here; the user should know.
void ReportWhatHasNoEffect(RuleContext& context) {
  const Values& values = context.values;
  for (const auto& [key, entry] : values.entries()) {
    if (!entry.given || entry.broken || IsDefault(*entry.setting, entry.value)) continue;
    const Setting& setting = *entry.setting;
    if (setting.state == SettingState::kAccepted) {
      context.issues.Warning(key, key + " has no effect: " + std::string(setting.reason),
                             entry.position);
    } else if (!setting.switch_key.empty() &&
               IsDefault(*FindSetting(setting.switch_key), values.Get(setting.switch_key))) {
      context.issues.Warning(key,
                             key + " has no effect while " + std::string(setting.switch_key) +
                                 " is " + values.Get(setting.switch_key).dump(),
                             entry.position);
    }
  }
}

std::optional<std::int64_t> GivenSize(const Values& values, std::string_view key) {
  const Json value = values.Get(key);
  return value.is_null() ? std::nullopt : std::optional(value.get<std::int64_t>());
}

void BatchSizesAgree(RuleContext& context) {
  Values& values = context.values;
  if (values.Get("elasticity.enabled") == true) return;  // ElasticityDecidesTheBatch
  const GivenBatchSizes given = {.train = GivenSize(values, kTrainBatch),
                                 .micro = GivenSize(values, kMicroBatch),
                                 .accumulation = GivenSize(values, kAccumulation)};
  const StatusOr<BatchConfig> batch = SolveBatchSizes(given, context.facts.world_size);
  std::string from = "derived from";
  std::string_view blamed = kTrainBatch;
  for (const std::string_view key : {kAccumulation, kMicroBatch, kTrainBatch}) {
    if (values.Get(key).is_null()) continue;
    from += " " + std::string(key) + ",";
    blamed = key;
  }
  if (!batch.ok()) {
    context.issues.Error(blamed, batch.status().message(), values.PositionOf(blamed));
    return;
  }
  from += " world size " + std::to_string(context.facts.world_size);
  const auto derive = [&](std::string_view key, std::int64_t value) {
    if (values.Get(key).is_null()) values.Derive(key, value, from);
  };
  derive(kTrainBatch, batch->train_batch_size);
  derive(kMicroBatch, batch->train_micro_batch_size_per_gpu);
  derive(kAccumulation, batch->gradient_accumulation_steps);
}

void OptimizerDefaultsToAdamW(RuleContext& context) {
  if (context.values.IsGiven("optimizer.type")) return;
  context.values.Derive("optimizer.type", "AdamW", "default of the built-in trainer");
  context.issues.Warning("optimizer.type",
                         "no optimizer is named, so AdamW with learning rate " +
                             context.values.Get("optimizer.params.lr").dump() +
                             " is used; to choose, add \"optimizer\": {\"type\": \"AdamW\", "
                             "\"params\": {\"lr\": 1e-4}}");
}

void AdamWDecouplesWeightDecay(RuleContext& context) {
  Values& values = context.values;
  if (values.Get("optimizer.type") != "AdamW") return;
  if (values.Get("optimizer.params.adam_w_mode") == true) return;
  context.issues.Warning("optimizer.params.adam_w_mode",
                         "optimizer.params.adam_w_mode has no effect: AdamW always decouples "
                         "weight decay; use type Adam to switch it off",
                         values.PositionOf("optimizer.params.adam_w_mode"));
  values.Derive("optimizer.params.adam_w_mode", true, "derived from optimizer.type");
}

void BetasAreTwoFractions(RuleContext& context) {
  const Json betas = context.values.Get("optimizer.params.betas");
  const bool fits = betas.size() == 2 && std::all_of(betas.begin(), betas.end(), [](const Json& b) {
                      return b.is_number() && b.get<double>() >= 0.0 && b.get<double>() < 1.0;
                    });
  if (fits) return;
  context.issues.Error("optimizer.params.betas",
                       "optimizer.params.betas must be two numbers from 0 up to, but without, 1, "
                       "not " +
                           ShortDump(betas),
                       context.values.PositionOf("optimizer.params.betas"));
}

constexpr Rule kRules[] = {
    {"DeprecatedNamesCarryTheirValue", {}, DeprecatedNamesCarryTheirValue},
    {"FlagsFillOrAgree", {}, FlagsFillOrAgree},
    {"AutoFollowsTransformers",
     {"zero_optimization.stage", "elasticity.enabled"},
     AutoFollowsTransformers},
    {"RefuseWhatIsNotBuilt", {}, RefuseWhatIsNotBuilt},
    {"ReportWhatHasNoEffect", {}, ReportWhatHasNoEffect},
    {"ElasticityDecidesTheBatch", {"elasticity.enabled"}, ElasticityDecidesTheBatch},
    {"BatchSizesAgree",
     {kTrainBatch, kMicroBatch, kAccumulation, "elasticity.enabled"},
     BatchSizesAgree},
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
    {"OptimizerDefaultsToAdamW",
     {"optimizer.type", "optimizer.params.lr"},
     OptimizerDefaultsToAdamW},
    {"AdamWDecouplesWeightDecay",
     {"optimizer.type", "optimizer.params.adam_w_mode"},
     AdamWDecouplesWeightDecay},
    {"OptimizersTakeTheirOwnParameters", {"optimizer.type"}, OptimizersTakeTheirOwnParameters},
    {"OptimizersHaveTheirOwnDefaults", {"optimizer.type"}, OptimizersHaveTheirOwnDefaults},
    {"MuonHasTwoRates",
     {"optimizer.type", "optimizer.params.lr", "optimizer.params.muon_lr",
      "optimizer.params.adam_lr"},
     MuonHasTwoRates},
    {"NesterovNeedsMomentum",
     {"optimizer.params.nesterov", "optimizer.params.momentum", "optimizer.params.dampening"},
     NesterovNeedsMomentum},
    {"MuOptimizersNeedBaseShapes",
     {"optimizer.type", "optimizer.params.base_shapes"},
     MuOptimizersNeedBaseShapes},
    {"LambLimitsAreInOrder",
     {"optimizer.params.min_coeff", "optimizer.params.max_coeff", "optimizer.params.factor_min",
      "optimizer.params.factor_max"},
     LambLimitsAreInOrder},
    {"SixteenBitMastersNeedZero",
     {"optimizer.type", "zero_optimization.stage", "fp16.fp16_master_weights_and_grads",
      "bf16.bf16_master_weights_and_grads"},
     SixteenBitMastersNeedZero},
    {"BetasAreTwoFractions", {"optimizer.params.betas"}, BetasAreTwoFractions},
    {"SchedulerParamsNeedAType", {"scheduler.type"}, SchedulerParamsNeedAType},
    {"ScheduleIsDescribedByNumbers", {"scheduler.type"}, ScheduleIsDescribedByNumbers},
    {"ScheduleTakesItsParams", {"scheduler.type"}, ScheduleTakesItsParams},
    {"ScheduleIsDefined", {"scheduler.type", "scheduler.params.milestones"}, ScheduleIsDefined},
    {"ListsHaveOneLength", {"scheduler.type"}, ListsHaveOneLength},
    {"WarmupEndsAtTheLearningRate",
     {"scheduler.params.warmup_max_lr", "optimizer.params.lr", "scheduler.type"},
     WarmupEndsAtTheLearningRate},
    {"CycledMomentumNeedsAPlace",
     {"scheduler.type", "scheduler.params.cycle_momentum", "optimizer.type",
      "optimizer.params.momentum"},
     CycledMomentumNeedsAPlace},
    {"OneCycleReplacesTheBetas",
     {"scheduler.type", "scheduler.params.cycle_momentum", "optimizer.params.betas"},
     OneCycleReplacesTheBetas},
};

}  // namespace

std::vector<Rule> AllRules() {
  std::vector<Rule> rules(std::begin(kRules), std::end(kRules));
  rules.insert(rules.end(), FeatureRules().begin(), FeatureRules().end());
  return rules;
}

void ApplyRules(RuleContext& context) {
  for (const Rule& rule : AllRules()) {
    const bool readable = std::none_of(
        rule.keys.begin(), rule.keys.end(),
        [&](std::string_view key) { return !key.empty() && context.values.IsBroken(key); });
    if (readable) rule.apply(context);
  }
}

}  // namespace ds::config
