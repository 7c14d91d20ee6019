#include "runtime/config/sections/optimizer_section.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/keys/registry.h"
#include "runtime/config/sections/zero_section.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kTorchAdamWDecay = 0.01;

bool Takes(const OptimizerType& type, std::string_view key) {
  if (key == keys::kOptimizerParamsLr || key == keys::kOptimizerParamsWeightDecay) return true;
  return std::any_of(type.params.begin(), type.params.end(), [&](const OptimizerParam& param) {
    return !param.is_fixed && key == param.key;
  });
}

// Rejects a parameter of another optimizer, as the optimizer's constructor would.
void CheckOptimizerParameters(RuleContext& context) {
  const OptimizerType* const type = OptimizerTypeOf(context.values);
  if (type == nullptr) return;
  for (const auto& [key, entry] : context.values.entries()) {
    if (!keys::kOptimizerParams.Has(key) || !entry.given || entry.broken) continue;
    const bool refused = entry.setting->state == SettingState::kRefused;
    if (refused || Takes(*type, key) || IsDefault(*entry.setting, entry.value)) continue;
    context.issues.Error(key,
                         key + " is not a parameter of " + std::string(type->name) + ": remove it",
                         entry.position);
  }
}

// Sets the defaults of keys for which optimizers have different defaults.
void SetOptimizerDefaults(RuleContext& context) {
  const OptimizerType* const type = OptimizerTypeOf(context.values);
  if (type == nullptr) return;
  for (const OptimizerParam& param : type->params) {
    if (param.otherwise.empty() || context.values.IsGiven(param.key)) continue;
    context.values.Derive(param.key, Json::parse(param.otherwise),
                          "default of " + std::string(type->name));
  }
}

// DeepSpeed's Adam does not decay by default, PyTorch's AdamW decays by 0.01; torch_adam selects
// between them. Muon is excluded: both of its halves have their own default, whichever Adam is
// used.
void DeriveTorchAdamWDecay(RuleContext& context) {
  constexpr Key kDecay = keys::kOptimizerParamsWeightDecay;
  Values& values = context.values;
  const Json type = values.Get(keys::kOptimizerType);
  const bool is_set = values.OriginOf(kDecay) != "default" || values.autos().contains(kDecay);
  const bool is_adam = type == "Adam" || type == "AdamW";
  if (!is_adam || is_set || values.Get(keys::kOptimizerParamsTorchAdam) != true) return;
  if (values.Get(keys::kOptimizerParamsAdamWMode) != true) return;
  values.Derive(kDecay, kTorchAdamWDecay, "default of torch.optim.AdamW (torch_adam)");
}

// Sets the rates of Muon and of the parameters that AdamW updates: each its own key, else lr, else
// a default. A schedule scales each from its own rate; an absolute rate in the schedule applies to
// both.
void DeriveMuonRates(RuleContext& context) {
  constexpr Key kLr = keys::kOptimizerParamsLr;
  Values& values = context.values;
  if (values.Get(keys::kOptimizerType) != "Muon") return;
  const auto rate = [&](Key key, double otherwise) {
    if (values.IsGiven(key)) return;
    if (values.IsGiven(kLr)) {
      values.Derive(key, values.Get(kLr), "derived from optimizer.params.lr");
    } else {
      values.Derive(key, otherwise, "default of Muon");
    }
  };
  rate(keys::kOptimizerParamsMuonLr, 0.02);
  rate(keys::kOptimizerParamsAdamLr, 3e-4);
  values.Derive(kLr, values.Get(keys::kOptimizerParamsMuonLr),
                "derived from optimizer.params.muon_lr");
}

// Nesterov momentum needs a momentum without dampening.
void CheckNesterovMomentum(RuleContext& context) {
  const Values& values = context.values;
  if (values.Get(keys::kOptimizerParamsNesterov) != true) return;
  if (values.Get(keys::kOptimizerParamsMomentum) != 0 &&
      values.Get(keys::kOptimizerParamsDampening) == 0) {
    return;
  }
  context.issues.Error(keys::kOptimizerParamsNesterov,
                       "optimizer.params.nesterov needs optimizer.params.momentum above 0 and "
                       "optimizer.params.dampening 0",
                       values.PositionOf(keys::kOptimizerParamsNesterov));
}

// The mup package gets base shapes from set_base_shapes; here the config names them.
void CheckMuBaseShapes(RuleContext& context) {
  constexpr Key kBaseShapes = keys::kOptimizerParamsBaseShapes;
  if (!OptimizerTakes(context.values, kBaseShapes)) return;
  if (context.values.Get(kBaseShapes).is_string()) return;
  context.issues.Error(keys::kOptimizerType,
                       context.values.Get(keys::kOptimizerType).get<std::string>() +
                           " scales rates by how wide the model is against a base model: give "
                           "optimizer.params.base_shapes, the file that mup.make_base_shapes(base, "
                           "delta, savefile) has written",
                       context.values.PositionOf(keys::kOptimizerType));
}

// Checks that the limits of LAMB's trust ratio and of 1-bit LAMB's factor are in order.
void CheckLambLimits(RuleContext& context) {
  const Values& values = context.values;
  const auto check = [&](Key low, Key high) {
    if (values.Get(low) <= values.Get(high)) return;
    context.issues.Error(low, std::string(low) + " is above " + std::string(high),
                         values.PositionOf(low));
  };
  check(keys::kOptimizerParamsMinCoeff, keys::kOptimizerParamsMaxCoeff);
  check(keys::kOptimizerParamsFactorMin, keys::kOptimizerParamsFactorMax);
}

bool IsOneBit(const Json& optimizer) {
  return optimizer == "OneBitAdam" || optimizer == "ZeroOneAdam" || optimizer == "OneBitLamb";
}

void CheckOneBitWithoutZero(RuleContext& context) {
  const Json optimizer = context.values.Get(keys::kOptimizerType);
  if (IsOneBit(optimizer) && ZeroStage(context.values) > 0) {
    context.Refuse(keys::kOptimizerType, optimizer.dump() +
                                             " cannot be combined with ZeRO: its ranks hold full "
                                             "momenta; set zero_optimization.stage to 0");
  }
}

void CheckOneBitLambScale(RuleContext& context) {
  const Json optimizer = context.values.Get(keys::kOptimizerType);
  const bool is_lamb = optimizer == "Lamb" || optimizer == "OneBitLamb";
  if (is_lamb && context.IsOn(keys::kFp16Enabled) &&
      context.values.Get(keys::kFp16LossScale) != 0.0) {
    context.Refuse(keys::kFp16LossScale, "must be 0, which is dynamic, with " + optimizer.dump());
  }
}

void SetDefaultOptimizer(RuleContext& context) {
  if (context.values.IsGiven(keys::kOptimizerType)) return;
  context.values.Derive(keys::kOptimizerType, "AdamW", "default of the built-in trainer");
  context.issues.Warning(keys::kOptimizerType,
                         "no optimizer is named, so AdamW with learning rate " +
                             context.values.Get(keys::kOptimizerParamsLr).dump() +
                             " is used; to choose, add \"optimizer\": {\"type\": \"AdamW\", "
                             "\"params\": {\"lr\": 1e-4}}");
}

void DeriveAdamWMode(RuleContext& context) {
  Values& values = context.values;
  if (values.Get(keys::kOptimizerType) != "AdamW") return;
  if (values.Get(keys::kOptimizerParamsAdamWMode) == true) return;
  context.issues.Warning(keys::kOptimizerParamsAdamWMode,
                         "optimizer.params.adam_w_mode has no effect: AdamW always decouples "
                         "weight decay; use type Adam to switch it off",
                         values.PositionOf(keys::kOptimizerParamsAdamWMode));
  values.Derive(keys::kOptimizerParamsAdamWMode, true, "derived from optimizer.type");
}

void CheckBetas(RuleContext& context) {
  const Json betas = context.values.Get(keys::kOptimizerParamsBetas);
  const bool fits = betas.size() == 2 && std::all_of(betas.begin(), betas.end(), [](const Json& b) {
                      return b.is_number() && b.get<double>() >= 0.0 && b.get<double>() < 1.0;
                    });
  if (fits) return;
  context.issues.Error(keys::kOptimizerParamsBetas,
                       "optimizer.params.betas must be two numbers from 0 up to, but without, 1, "
                       "not " +
                           ShortDump(betas),
                       context.values.PositionOf(keys::kOptimizerParamsBetas));
}

constexpr Rule kRules[] = {
    {"SetDefaultOptimizer", {keys::kOptimizerType, keys::kOptimizerParamsLr}, SetDefaultOptimizer},
    {"DeriveAdamWMode", {keys::kOptimizerType, keys::kOptimizerParamsAdamWMode}, DeriveAdamWMode},
    {"CheckOptimizerParameters", {keys::kOptimizerType}, CheckOptimizerParameters},
    {"SetOptimizerDefaults", {keys::kOptimizerType}, SetOptimizerDefaults},
    {"DeriveTorchAdamWDecay",
     {keys::kOptimizerType, keys::kOptimizerParamsTorchAdam, keys::kOptimizerParamsAdamWMode},
     DeriveTorchAdamWDecay},
    {"DeriveMuonRates",
     {keys::kOptimizerType, keys::kOptimizerParamsLr, keys::kOptimizerParamsMuonLr,
      keys::kOptimizerParamsAdamLr},
     DeriveMuonRates},
    {"CheckNesterovMomentum",
     {keys::kOptimizerParamsNesterov, keys::kOptimizerParamsMomentum,
      keys::kOptimizerParamsDampening},
     CheckNesterovMomentum},
    {"CheckMuBaseShapes",
     {keys::kOptimizerType, keys::kOptimizerParamsBaseShapes},
     CheckMuBaseShapes},
    {"CheckLambLimits",
     {keys::kOptimizerParamsMinCoeff, keys::kOptimizerParamsMaxCoeff,
      keys::kOptimizerParamsFactorMin, keys::kOptimizerParamsFactorMax},
     CheckLambLimits},
    {"CheckBetas", {keys::kOptimizerParamsBetas}, CheckBetas},
    {"CheckOneBitWithoutZero",
     {keys::kOptimizerType, keys::kZeroOptimizationStage},
     CheckOneBitWithoutZero},
    {"CheckOneBitLambScale",
     {keys::kOptimizerType, keys::kFp16Enabled, keys::kFp16LossScale},
     CheckOneBitLambScale},
};

}  // namespace

std::span<const Rule> OptimizerRules() { return kRules; }

const OptimizerType* OptimizerTypeOf(const Values& values) {
  const Json name = values.Get(keys::kOptimizerType);
  const auto types = OptimizerTypes();
  const auto found = std::find_if(types.begin(), types.end(),
                                  [&](const OptimizerType& type) { return name == type.name; });
  return found == types.end() ? nullptr : &*found;
}

bool OptimizerTakes(const Values& values, Key key) {
  const OptimizerType* const type = OptimizerTypeOf(values);
  return type != nullptr && Takes(*type, key);
}

std::string ListOptimizers(bool OptimizerType::*property) {
  std::vector<std::string_view> names;
  for (const OptimizerType& type : OptimizerTypes()) {
    if (type.*property) names.push_back(type.name);
  }
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) list += i + 1 == names.size() ? " or " : ", ";
    list += names[i];
  }
  return list;
}

bool OptimizerOmitsKey(const Values& values, Key key) {
  if (!keys::kOptimizerParams.Has(key)) return false;
  return values.OriginOf(key) == "default" || !OptimizerTakes(values, key);
}

void FillOptimizer(const Values& values, DsConfig* config) {
  const OptimizerType* const type = OptimizerTypeOf(values);
  DS_CHECK_MSG(type != nullptr, "a registered optimizer");
  const Json base_shapes = values.Get(keys::kOptimizerParamsBaseShapes);
  config->optimizer = {
      .lr = values.Get(keys::kOptimizerParamsLr),
      .weight_decay = values.Get(keys::kOptimizerParamsWeightDecay),
      .algorithm = type->fill(values),
      .base_shapes = base_shapes.is_null() ? "" : base_shapes.get<std::string>(),
      .fp32_optimizer_states = values.Get(keys::kOptimizerParamsFp32OptimizerStates),
      .blockwise_states = type->is_blockwise};
}

}  // namespace ds::config
