#include "runtime/config/sections/optimizer_rules.h"

#include <algorithm>
#include <string>

#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/registry.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPrefix = "optimizer.params.";

// What the constructor of an optimizer takes beside lr and weight_decay, and where its defaults are
// not the registry's.
struct OptimizerParams {
  std::string_view type;
  std::string_view names;          // " name name ... ", so that " name " can be searched for
  std::string_view defaults_json;  // {"name": default, ...}
};

constexpr OptimizerParams kOptimizerParams[] = {
    {"Adam",
     " betas eps bias_correction adam_w_mode torch_adam fp32_optimizer_states "
     "set_grad_none foreach fused capturable ",
     "{}"},
    {"AdamW",
     " betas eps bias_correction adam_w_mode torch_adam fp32_optimizer_states "
     "set_grad_none foreach fused capturable ",
     "{}"},
    {"Lamb", " betas eps bias_correction eps_inside_sqrt min_coeff max_coeff ", "{}"},
    {"Lion", " betas fp32_optimizer_states set_grad_none ", "{}"},
    {"Adagrad", " eps lr_decay fp32_optimizer_states foreach fused ",
     R"({"lr": 0.01, "eps": 1e-10})"},
    {"Muon",
     " betas eps adam_w_mode torch_adam fp32_optimizer_states momentum muon_lr adam_lr ns_method ",
     R"({"betas": [0.9, 0.95], "eps": 1e-10})"},
    {"OneBitAdam", " betas eps bias_correction freeze_step cuda_aware comm_backend_name ", "{}"},
    {"OneBitLamb",
     " betas eps bias_correction min_coeff max_coeff freeze_step cuda_aware comm_backend_name "
     "coeff_beta factor_max factor_min factor_threshold ",
     "{}"},
    {"ZeroOneAdam",
     " betas eps bias_correction cuda_aware comm_backend_name var_freeze_step var_update_scaler "
     "local_step_scaler local_step_clipper ",
     "{}"},
    {"MuAdam", " betas eps base_shapes ", R"({"adam_w_mode": false})"},
    {"MuAdamW", " betas eps base_shapes ", "{}"},
    {"MuSGD", " momentum dampening nesterov base_shapes ", R"({"momentum": 0.0})"},
    {"SGD", " momentum dampening nesterov foreach fused ", R"({"momentum": 0.0})"},
};

const OptimizerParams* ParamsOf(const Values& values) {
  const Json type = values.Get("optimizer.type");
  const auto found = std::find_if(std::begin(kOptimizerParams), std::end(kOptimizerParams),
                                  [&](const OptimizerParams& row) { return type == row.type; });
  return found == std::end(kOptimizerParams) ? nullptr : found;
}

bool Takes(const OptimizerParams& params, std::string_view name) {
  if (name == "lr" || name == "weight_decay") return true;
  return params.names.find(" " + std::string(name) + " ") != std::string_view::npos;
}

}  // namespace

void OptimizersTakeTheirOwnParameters(RuleContext& context) {
  const OptimizerParams* const params = ParamsOf(context.values);
  if (params == nullptr) return;
  for (const auto& [key, entry] : context.values.entries()) {
    if (!key.starts_with(kPrefix) || !entry.given || entry.broken) continue;
    const std::string name = key.substr(kPrefix.size());
    const bool refused = entry.setting->state == SettingState::kRefused;
    if (refused || Takes(*params, name) || IsDefault(*entry.setting, entry.value)) continue;
    context.issues.Error(
        key, key + " is not a parameter of " + std::string(params->type) + ": remove it",
        entry.position);
  }
}

void OptimizersHaveTheirOwnDefaults(RuleContext& context) {
  const OptimizerParams* const params = ParamsOf(context.values);
  if (params == nullptr) return;
  const Json defaults = Json::parse(params->defaults_json);
  for (const auto& [name, value] : defaults.items()) {
    const std::string key = std::string(kPrefix) + name;
    if (context.values.IsGiven(key)) continue;
    context.values.Derive(key, value, "default of " + std::string(params->type));
  }
}

void MuonHasTwoRates(RuleContext& context) {
  constexpr std::string_view kLr = "optimizer.params.lr";
  Values& values = context.values;
  if (values.Get("optimizer.type") != "Muon") return;
  const auto rate = [&](std::string_view key, double otherwise) {
    if (values.IsGiven(key)) return;
    if (values.IsGiven(kLr)) {
      values.Derive(key, values.Get(kLr), "derived from optimizer.params.lr");
    } else {
      values.Derive(key, otherwise, "default of Muon");
    }
  };
  rate("optimizer.params.muon_lr", 0.02);
  rate("optimizer.params.adam_lr", 3e-4);
  const Json muon_lr = values.Get("optimizer.params.muon_lr");
  if (muon_lr <= 0.0) {
    context.issues.Error("optimizer.params.muon_lr",
                         "Muon's learning rate must be above 0: a schedule moves AdamW's rate in "
                         "proportion to it",
                         values.PositionOf("optimizer.params.muon_lr"));
    return;
  }
  values.Derive(kLr, muon_lr, "derived from optimizer.params.muon_lr");
}

void NesterovNeedsMomentum(RuleContext& context) {
  const Values& values = context.values;
  if (values.Get("optimizer.params.nesterov") != true) return;
  if (values.Get("optimizer.params.momentum") != 0 &&
      values.Get("optimizer.params.dampening") == 0) {
    return;
  }
  context.issues.Error("optimizer.params.nesterov",
                       "optimizer.params.nesterov needs optimizer.params.momentum above 0 and "
                       "optimizer.params.dampening 0",
                       values.PositionOf("optimizer.params.nesterov"));
}

void MuOptimizersNeedBaseShapes(RuleContext& context) {
  constexpr std::string_view kBaseShapes = "optimizer.params.base_shapes";
  const Json type = context.values.Get("optimizer.type");
  if (type != "MuAdam" && type != "MuAdamW" && type != "MuSGD") return;
  if (context.values.Get(kBaseShapes).is_string()) return;
  context.issues.Error("optimizer.type",
                       type.get<std::string>() +
                           " scales rates by how wide the model is against a base model: give "
                           "optimizer.params.base_shapes, the file that mup.make_base_shapes(base, "
                           "delta, savefile) has written",
                       context.values.PositionOf("optimizer.type"));
}

void LambLimitsAreInOrder(RuleContext& context) {
  const Values& values = context.values;
  const auto check = [&](const std::string& low, const std::string& high) {
    if (values.Get(low) <= values.Get(high)) return;
    context.issues.Error(low, low + " is above " + high, values.PositionOf(low));
  };
  check("optimizer.params.min_coeff", "optimizer.params.max_coeff");
  check("optimizer.params.factor_min", "optimizer.params.factor_max");
}

}  // namespace ds::config
