#include "runtime/config/sections/sections.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/keys/registry.h"
#include "runtime/config/schedule_types.h"
#include "runtime/config/sections/optimizer_section.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr Key kType = keys::kSchedulerType;
constexpr double kOneCycleBeta2 = 0.99;
constexpr double kDecayDefaultMaxLr = 0.001;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;  // as the registry's maximum of counts

std::string NamesOf(const ScheduleType& type) {
  if (type.params.empty()) return "none";
  std::string names;
  for (const ScheduleParam& param : type.params) {
    names += (names.empty() ? "" : ", ") +
             std::string(param.key.substr(keys::kSchedulerParams.size() + 1));
  }
  return names;
}

// Returns true if the user gives a parameter of a schedule a value other than its default, or
// "auto".
bool HasEffect(const std::string& key, const Values::Entry& entry) {
  return keys::kSchedulerParams.Has(key) && (entry.given || entry.is_forwarded) && !entry.broken &&
         entry.setting->state != SettingState::kRefused &&  // which is reported already
         !IsDefault(*entry.setting, entry.value);
}

void FillIn(RuleContext& context, const ScheduleType& type, const ScheduleParam& param) {
  Values& values = context.values;
  const Key key = param.key;
  const std::string name(type.name);
  if (values.IsKnown(key) || values.IsBroken(key)) return;
  if (param.otherwise == "required") {
    if (values.autos().contains(key))
      return;  // ResolveTransformersAuto has reported why it is missing
    const bool takes_auto = FindSetting(key)->auto_rule == AutoRule::kResolved;
    context.issues.Error(key,
                         "scheduler.type \"" + name + "\" needs " + std::string(key) +
                             (takes_auto ? " (\"auto\": the steps of the run)" : ""),
                         values.PositionOf(kType));
  } else if (!param.otherwise.empty() && param.otherwise != "null") {
    values.Derive(key, Json::parse(param.otherwise), "default of scheduler.type " + name);
  }
}

// Returns true if `predicate` holds for the parameter's number, or for one of its numbers. Returns
// false for a rejected parameter.
template <typename Predicate>
bool Is(const Values& values, Key key, Predicate predicate) {
  Json value = values.Get(key);
  if (!value.is_array()) value = Json::array({value});
  return std::any_of(value.begin(), value.end(), [&](const Json& number) {
    return number.is_number() && predicate(number.get<double>());
  });
}

// Returns the parameters of the chosen schedule that are lists with a number per parameter group.
std::vector<Key> ListsOf(const Values& values) {
  std::vector<Key> keys;
  const ScheduleType* type = ChosenSchedule(values);
  if (type == nullptr) return keys;
  for (const ScheduleParam& param : type->params) {
    const bool takes_list = FindSetting(param.key)->per_group;
    if (takes_list && values.Get(param.key).is_array()) keys.push_back(param.key);
  }
  return keys;
}

// Rejects parameters without a scheduler.type, which would be ignored.
void CheckSchedulerType(RuleContext& context) {
  if (context.values.IsGiven(kType) || context.values.IsBroken(kType)) return;
  for (const auto& [key, entry] : context.values.entries()) {
    if (!HasEffect(key, entry)) continue;
    context.issues.Error(key,
                         key + " needs scheduler.type: without it the learning rate is constant",
                         entry.position);
  }
}

// Rejects LambdaLR and similar schedules, which JSON cannot describe.
void CheckScheduleIsNumeric(RuleContext& context) {
  const Values& values = context.values;
  const Json type = values.Get(kType);
  if (type.is_null() || ChosenSchedule(values) != nullptr) return;
  std::string reason = "needs scheduler objects, which JSON cannot hold";
  if (type == "LambdaLR" || type == "MultiplicativeLR") {
    reason = "needs a function, which JSON cannot hold";
  } else if (type == "ReduceLROnPlateau") {
    reason =
        "needs a metric at every step, which a config cannot name (DeepSpeed hands it the batch "
        "size)";
  } else if (type == "reduce_lr_on_plateau" || type == "greedy") {
    reason = "follows a metric, and dsrun's rates follow from the number of the step alone";
  }
  context.issues.Error(kType,
                       "scheduler.type " + type.dump() + " " + reason +
                           ": use another one, such as \"WarmupCosineLR\" or \"LinearLR\"",
                       values.PositionOf(kType));
}

// Acts as the constructor of the schedule: rejects unknown parameters, requires the mandatory ones,
// and sets the defaults of the others.
void CheckScheduleParams(RuleContext& context) {
  const ScheduleType* type = ChosenSchedule(context.values);
  if (type == nullptr) return;
  for (const auto& [key, entry] : context.values.entries()) {
    if (!HasEffect(key, entry) || type->Takes(Key(key))) continue;
    context.issues.Error(key,
                         key + " is not a parameter of " + std::string(type->name) +
                             ", which takes " + NamesOf(*type),
                         entry.position);
  }
  for (const ScheduleParam& param : type->params) FillIn(context, *type, param);
}

// Rejects values within a key's range that the schedule does not allow.
void CheckScheduleValues(RuleContext& context) {
  const Values& values = context.values;
  const Json milestones = values.Get(keys::kSchedulerParamsMilestones);
  const bool are_integers = std::all_of(milestones.begin(), milestones.end(), [](const Json& m) {
    return m.is_number_unsigned() && m.get<std::uint64_t>() <= INT64_MAX;
  });
  if (!are_integers) {
    context.Refuse(keys::kSchedulerParamsMilestones,
                   "must be whole numbers from 0, not " + ShortDump(milestones));
  }
  for (const Key key : {keys::kSchedulerParamsStartFactor, keys::kSchedulerParamsDivFactor,
                        keys::kSchedulerParamsFinalDivFactor}) {
    if (Is(values, key, [](double v) { return v == 0.0; })) {
      context.Refuse(key, "must be above 0");
    }
  }
  for (const Key key : {keys::kSchedulerParamsCycleMinMom, keys::kSchedulerParamsCycleMaxMom,
                        keys::kSchedulerParamsBaseMomentum, keys::kSchedulerParamsMaxMomentum}) {
    if (Is(values, key, [](double v) { return v == 1.0; })) {
      context.Refuse(key, "must be below 1: the average would never move");
    }
  }
  if (values.Get(kType) != "OneCycleLR" || values.IsGiven(keys::kSchedulerParamsTotalSteps)) return;
  constexpr Key kEpochs = keys::kSchedulerParamsEpochs;
  constexpr Key kPerEpoch = keys::kSchedulerParamsStepsPerEpoch;
  if (values.IsGiven(kEpochs) && values.IsGiven(kPerEpoch)) {
    const std::int64_t epochs = values.Get(kEpochs), per_epoch = values.Get(kPerEpoch);
    if (epochs <= kMostSteps / per_epoch) return;
    context.Refuse(kEpochs, "times steps_per_epoch must be at most " + std::to_string(kMostSteps));
    return;
  }
  context.issues.Error(keys::kSchedulerParamsTotalSteps,
                       "scheduler.type \"OneCycleLR\" needs scheduler.params.total_steps, or "
                       "epochs and steps_per_epoch",
                       values.PositionOf(kType));
}

// Lists have a number per parameter group. Only the model knows how many groups there are.
void CheckListLengths(RuleContext& context) {
  const Values& values = context.values;
  const std::vector<Key> keys = ListsOf(values);
  for (const Key key : keys) {
    const std::size_t size = values.Get(key).size(), first = values.Get(keys[0]).size();
    if (size == first) continue;
    context.issues.Error(key,
                         std::string(key) + " has " + std::to_string(size) + " numbers and " +
                             std::string(keys[0]) + " has " + std::to_string(first) +
                             ": give one for each parameter group",
                         values.PositionOf(key));
  }
}

// WarmupLR ends at each group's own rate by default; a number would be the same for all groups.
// WarmupDecayLR ends at 0.001 by default. "auto" is the optimizer's lr.
void DeriveWarmupRate(RuleContext& context) {
  Values& values = context.values;
  constexpr Key key = keys::kSchedulerParamsWarmupMaxLr;
  const Json type = values.Get(kType);
  const bool warms_up = type == "WarmupLR" || type == "WarmupDecayLR";
  if (!warms_up || !values.Get(key).is_null()) return;
  const Json lr = values.Get(keys::kOptimizerParamsLr);
  if (values.autos().contains(key)) {
    values.Resolve(key, lr, "\"auto\": optimizer.params.lr", Values::Source::kAuto);
    return;
  }
  if (type == "WarmupLR") return;
  values.Derive(key, kDecayDefaultMaxLr, "default of scheduler.type WarmupDecayLR");
  if (lr == kDecayDefaultMaxLr) return;
  context.issues.Warning(key,
                         std::string(key) +
                             " is 0.001, WarmupDecayLR's default, and not optimizer.params.lr (" +
                             lr.dump() + "): set it explicitly",
                         values.PositionOf(kType));
}

// Returns true if the schedule sets a rate that replaces every parameter group's own.
bool BringsItsOwnRate(const Values& values) {
  const Json type = values.Get(kType);
  if (type == "WarmupLR") return !values.Get(keys::kSchedulerParamsWarmupMaxLr).is_null();
  constexpr std::string_view kTypes[] = {"WarmupDecayLR", "LRRangeTest", "OneCycle", "CyclicLR",
                                         "OneCycleLR"};
  return std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes);
}

// Follows DeepSpeed, where the schedule sets the rate of all groups.
void ReplaceMuonRates(RuleContext& context) {
  const Values& values = context.values;
  constexpr Key kAdamLr = keys::kOptimizerParamsAdamLr;
  const Json muon_lr = values.Get(keys::kOptimizerParamsMuonLr), adam_lr = values.Get(kAdamLr);
  const bool has_lists = !ListsOf(values).empty();
  if (values.Get(keys::kOptimizerType) != "Muon" || muon_lr == adam_lr) return;
  if (has_lists || !BringsItsOwnRate(values)) return;
  context.issues.Warning(kAdamLr,
                         "Muon's rate " + muon_lr.dump() + " and its AdamW's, " + adam_lr.dump() +
                             ", are both replaced by that of scheduler.type " +
                             values.Get(kType).get<std::string>() +
                             ", as in DeepSpeed: to keep them apart, give its rates as lists, "
                             "[Muon's, AdamW's]",
                         values.PositionOf(kType));
}

// Handles optimizers without betas. OneCycle does not change their momentum, as in DeepSpeed;
// PyTorch's cyclic schedules change SGD's, if it has one. Muon keeps its momentum, and the betas of
// its AdamW, since schedules do not reach them.
void CheckCycledMomentum(RuleContext& context) {
  Values& values = context.values;
  const Json type = values.Get(kType);
  const Json optimizer = values.Get(keys::kOptimizerType);
  const bool is_torchs = type == "CyclicLR" || type == "OneCycleLR";
  const bool is_muon = optimizer == "Muon";
  const bool has_betas = !is_muon && OptimizerTakes(values, keys::kOptimizerParamsBetas);
  const bool has_momentum = !is_muon && OptimizerTakes(values, keys::kOptimizerParamsMomentum);
  const bool cycles =
      (type == "OneCycle" || is_torchs) && values.Get(keys::kSchedulerParamsCycleMomentum) == true;
  if (!cycles || has_betas) return;
  if (is_torchs) {
    if (has_momentum && values.Get(keys::kOptimizerParamsMomentum) != 0.0) return;
    context.Refuse(keys::kSchedulerParamsCycleMomentum,
                   "must be false with optimizer " + optimizer.dump() +
                       ", which has no momentum that a schedule moves");
    return;
  }
  context.issues.Warning(keys::kSchedulerParamsCycleMomentum,
                         std::string(keys::kSchedulerParamsCycleMomentum) +
                             " has no effect with optimizer " + optimizer.dump() +
                             ", which has no betas that a schedule moves",
                         values.PositionOf(kType));
  values.Derive(keys::kSchedulerParamsCycleMomentum, false, "derived from optimizer.type");
}

// OneCycle with momentum replaces both betas of the optimizer; beta2 becomes 0.99.
void ReplaceBetas(RuleContext& context) {
  Values& values = context.values;
  const bool cycles =
      values.Get(kType) == "OneCycle" && values.Get(keys::kSchedulerParamsCycleMomentum) == true;
  Json betas = values.Get(keys::kOptimizerParamsBetas);
  if (!cycles || betas.size() != 2 || betas[1] == kOneCycleBeta2) return;
  context.issues.Warning(keys::kOptimizerParamsBetas,
                         "optimizer.params.betas " + betas.dump() +
                             " is replaced by scheduler.type OneCycle with cycle_momentum: beta1 "
                             "cycles and beta2 is 0.99",
                         values.PositionOf(kType));
  betas[1] = kOneCycleBeta2;
  values.Derive(keys::kOptimizerParamsBetas, betas, "derived from scheduler.type OneCycle");
}

// Returns the length of the lists among the parameters; 0 without lists.
std::size_t GroupsOfLists(const Values& values) {
  const std::vector<Key> keys = ListsOf(values);
  return keys.empty() ? 0 : values.Get(keys[0]).size();
}

constexpr Rule kRules[] = {
    {"CheckSchedulerType", {keys::kSchedulerType}, CheckSchedulerType},
    {"CheckScheduleIsNumeric", {keys::kSchedulerType}, CheckScheduleIsNumeric},
    {"CheckScheduleParams", {keys::kSchedulerType}, CheckScheduleParams},
    {"CheckScheduleValues",
     {keys::kSchedulerType, keys::kSchedulerParamsMilestones},
     CheckScheduleValues},
    {"CheckListLengths", {keys::kSchedulerType}, CheckListLengths},
    {"DeriveWarmupRate",
     {keys::kSchedulerParamsWarmupMaxLr, keys::kOptimizerParamsLr, keys::kSchedulerType},
     DeriveWarmupRate},
    {"ReplaceMuonRates",
     {keys::kSchedulerType, keys::kSchedulerParamsWarmupMaxLr, keys::kOptimizerParamsMuonLr,
      keys::kOptimizerParamsAdamLr},
     ReplaceMuonRates},
    {"CheckCycledMomentum",
     {keys::kSchedulerType, keys::kSchedulerParamsCycleMomentum, keys::kOptimizerType,
      keys::kOptimizerParamsMomentum},
     CheckCycledMomentum},
    {"ReplaceBetas",
     {keys::kSchedulerType, keys::kSchedulerParamsCycleMomentum, keys::kOptimizerParamsBetas},
     ReplaceBetas},
};

}  // namespace

std::span<const Rule> SchedulerRules() { return kRules; }

bool SchedulerOmitsKey(const Values& values, Key key) {
  if (!keys::kSchedulerParams.Has(key)) return false;
  const ScheduleType* const type = ChosenSchedule(values);
  return type == nullptr || !type->Takes(key);
}

void FillScheduler(const Values& values, DsConfig* config) {
  const ScheduleType* const type = ChosenSchedule(values);
  if (type == nullptr) return;  // ConstantRate
  config->scheduler = type->fill(values, 0);
  for (std::size_t group = 0; group < GroupsOfLists(values); ++group) {
    config->group_schedules.push_back(type->fill(values, group));
  }
}

}  // namespace ds::config
