#include "runtime/config/sections/scheduler_section.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/check/value_check.h"
#include "runtime/config/keys/registry.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kType = "scheduler.type";
constexpr std::string_view kPrefix = "scheduler.params.";
constexpr double kOneCycleBeta2 = 0.99;
constexpr double kDecayDefaultMaxLr = 0.001;

// A parameter of a schedule, and what it is when not given.
struct Param {
  std::string_view name;
  std::string_view otherwise;  // JSON, or one of the two below
};
constexpr std::string_view kRegistry;  // empty: the default of the registry
constexpr std::string_view kRequired = "required";

constexpr Param kLrRangeTest[] = {{"lr_range_test_min_lr", kRegistry},
                                  {"lr_range_test_step_size", kRegistry},
                                  {"lr_range_test_step_rate", kRegistry},
                                  {"lr_range_test_staircase", kRegistry}};
constexpr Param kOneCycle[] = {{"cycle_min_lr", kRequired},
                               {"cycle_max_lr", kRequired},
                               {"decay_lr_rate", kRegistry},
                               {"cycle_first_step_size", kRegistry},
                               {"cycle_second_step_size", kRegistry},
                               {"cycle_first_stair_count", kRegistry},
                               {"cycle_second_stair_count", kRegistry},
                               {"decay_step_size", kRegistry},
                               {"cycle_momentum", kRegistry},
                               {"cycle_min_mom", kRegistry},
                               {"cycle_max_mom", kRegistry},
                               {"decay_mom_rate", kRegistry}};
constexpr Param kWarmup[] = {{"warmup_min_lr", kRegistry},
                             {"warmup_max_lr", kRegistry},
                             {"warmup_num_steps", kRegistry},
                             {"warmup_type", kRegistry}};
constexpr Param kWarmupDecay[] = {{"total_num_steps", kRequired},
                                  {"warmup_min_lr", kRegistry},
                                  {"warmup_max_lr", kRegistry},
                                  {"warmup_num_steps", kRegistry},
                                  {"warmup_type", kRegistry}};
constexpr Param kWarmupCosine[] = {{"total_num_steps", kRequired},
                                   {"warmup_min_ratio", kRegistry},
                                   {"warmup_num_steps", kRegistry},
                                   {"cos_min_ratio", kRegistry},
                                   {"warmup_type", kRegistry}};
constexpr Param kStep[] = {{"step_size", kRequired}, {"gamma", "0.1"}};
constexpr Param kMultiStep[] = {{"milestones", kRequired}, {"gamma", "0.1"}};
// The default of "factor" and "start_factor" is 1/3 as a double.
constexpr Param kConstant[] = {{"factor", "0.3333333333333333"}, {"total_iters", "5"}};
constexpr Param kLinear[] = {
    {"start_factor", "0.3333333333333333"}, {"end_factor", "1.0"}, {"total_iters", "5"}};
constexpr Param kExponential[] = {{"gamma", kRequired}};
constexpr Param kPolynomial[] = {{"total_iters", "5"}, {"power", "1.0"}};
constexpr Param kCosineAnnealing[] = {{"T_max", kRequired}, {"eta_min", "0.0"}};
constexpr Param kWarmRestarts[] = {{"T_0", kRequired}, {"T_mult", "1"}, {"eta_min", "0.0"}};
constexpr Param kCyclic[] = {
    {"base_lr", kRequired},        {"max_lr", kRequired},      {"step_size_up", "2000"},
    {"step_size_down", "null"},    {"mode", "\"triangular\""}, {"gamma", "1.0"},
    {"cycle_momentum", kRegistry}, {"base_momentum", "0.8"},   {"max_momentum", "0.9"}};
constexpr Param kOneCycleLr[] = {
    {"max_lr", kRequired},         {"total_steps", "null"},     {"epochs", "null"},
    {"steps_per_epoch", "null"},   {"pct_start", "0.3"},        {"anneal_strategy", "\"cos\""},
    {"cycle_momentum", kRegistry}, {"base_momentum", "0.85"},   {"max_momentum", "0.95"},
    {"div_factor", "25.0"},        {"final_div_factor", "1e4"}, {"three_phase", kRegistry}};

struct ScheduleType {
  std::string_view name;
  std::span<const Param> params;
};
constexpr ScheduleType kTypes[] = {{"LRRangeTest", kLrRangeTest},
                                   {"OneCycle", kOneCycle},
                                   {"WarmupLR", kWarmup},
                                   {"WarmupDecayLR", kWarmupDecay},
                                   {"WarmupCosineLR", kWarmupCosine},
                                   {"StepLR", kStep},
                                   {"MultiStepLR", kMultiStep},
                                   {"ConstantLR", kConstant},
                                   {"LinearLR", kLinear},
                                   {"ExponentialLR", kExponential},
                                   {"PolynomialLR", kPolynomial},
                                   {"CosineAnnealingLR", kCosineAnnealing},
                                   {"CosineAnnealingWarmRestarts", kWarmRestarts},
                                   {"CyclicLR", kCyclic},
                                   {"OneCycleLR", kOneCycleLr}};

// Null without a schedule, or for one that is refused.
const ScheduleType* TypeOf(const Values& values) {
  const Json name = values.Get(kType);
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&](const ScheduleType& type) { return name == type.name; });
  return found == std::end(kTypes) ? nullptr : found;
}

std::string KeyOf(std::string_view param) { return std::string(kPrefix) + std::string(param); }

Json ParamOf(const Values& values, std::string_view param) { return values.Get(KeyOf(param)); }

std::string NamesOf(const ScheduleType& type) {
  std::string names;
  for (const Param& param : type.params) {
    names += (names.empty() ? "" : ", ") + std::string(param.name);
  }
  return names;
}

// Whether the user gives a parameter of a schedule with something to say, by "auto", too.
bool SaysSomething(const std::string& key, const Values::Entry& entry) {
  return key.starts_with(kPrefix) && (entry.given || entry.travels) && !entry.broken &&
         entry.setting->state != SettingState::kRefused &&  // which says enough
         !IsDefault(*entry.setting, entry.value);
}

void FillIn(RuleContext& context, const ScheduleType& type, const Param& param) {
  Values& values = context.values;
  const std::string key = KeyOf(param.name);
  const std::string name(type.name);
  if (values.IsGiven(key) || values.IsBroken(key) || !values.Get(key).is_null()) return;
  if (param.otherwise == kRequired) {
    if (values.autos().contains(key))
      return;  // AutoFollowsTransformers has said why it is not there
    context.issues.Error(key, "scheduler.type \"" + name + "\" needs " + key,
                         values.PositionOf(kType));
  } else if (param.otherwise != kRegistry && param.otherwise != "null") {
    values.Derive(key, Json::parse(param.otherwise), "default of scheduler.type " + name);
  }
}

void Refuse(RuleContext& context, std::string_view param, const std::string& problem) {
  const std::string key = KeyOf(param);
  context.issues.Error(key, key + " " + problem, context.values.PositionOf(key));
}

// Whether `predicate` holds for the parameter's number, or one of its numbers, if it has not been
// refused.
template <typename Predicate>
bool Is(const Values& values, std::string_view param, Predicate predicate) {
  Json value = ParamOf(values, param);
  if (!value.is_array()) value = Json::array({value});
  return std::any_of(value.begin(), value.end(), [&](const Json& number) {
    return number.is_number() && predicate(number.get<double>());
  });
}

// The parameters of the chosen schedule that are lists with a number for each parameter group.
std::vector<std::string> ListsOf(const Values& values) {
  std::vector<std::string> keys;
  const ScheduleType* type = TypeOf(values);
  if (type == nullptr) return keys;
  for (const Param& param : type->params) {
    const std::string key = KeyOf(param.name);
    if (FindSetting(key)->per_group && values.Get(key).is_array()) keys.push_back(key);
  }
  return keys;
}

// Parameters without a scheduler.type would be ignored.
void SchedulerParamsNeedAType(RuleContext& context) {
  if (context.values.IsGiven(kType) || context.values.IsBroken(kType)) return;
  for (const auto& [key, entry] : context.values.entries()) {
    if (!SaysSomething(key, entry)) continue;
    context.issues.Error(key,
                         key + " needs scheduler.type: without it the learning rate is constant",
                         entry.position);
  }
}

// LambdaLR and its like cannot be described by JSON.
void ScheduleIsDescribedByNumbers(RuleContext& context) {
  const Values& values = context.values;
  const Json type = values.Get(kType);
  if (type.is_null() || TypeOf(values) != nullptr) return;
  std::string reason = "needs scheduler objects, which JSON cannot hold";
  if (type == "LambdaLR" || type == "MultiplicativeLR") {
    reason = "needs a function, which JSON cannot hold";
  } else if (type == "ReduceLROnPlateau") {
    reason =
        "needs a metric at every step, which a config cannot name (DeepSpeed hands it the batch "
        "size)";
  }
  context.issues.Error(kType,
                       "scheduler.type " + type.dump() + " " + reason +
                           ": use another one, such as \"WarmupCosineLR\" or \"LinearLR\"",
                       values.PositionOf(kType));
}

// As the constructor of the schedule: what it does not know is refused, what it needs and lacks is
// asked for, the rest gets its default.
void ScheduleTakesItsParams(RuleContext& context) {
  const ScheduleType* type = TypeOf(context.values);
  if (type == nullptr) return;
  for (const auto& [key, entry] : context.values.entries()) {
    if (!SaysSomething(key, entry)) continue;
    const bool known =
        std::any_of(type->params.begin(), type->params.end(),
                    [&key = key](const Param& param) { return key == KeyOf(param.name); });
    if (known) continue;
    context.issues.Error(
        key,
        key + " is no parameter of " + std::string(type->name) + ", which takes " + NamesOf(*type),
        entry.position);
  }
  for (const Param& param : type->params) FillIn(context, *type, param);
}

// Values that their own range admits, but not the schedule.
void ScheduleIsDefined(RuleContext& context) {
  const Values& values = context.values;
  const Json milestones = ParamOf(values, "milestones");
  const bool whole = std::all_of(milestones.begin(), milestones.end(), [](const Json& m) {
    return m.is_number_unsigned() && m.get<std::uint64_t>() <= INT64_MAX;
  });
  if (!whole) {
    Refuse(context, "milestones", "must be whole numbers from 0, not " + ShortDump(milestones));
  }
  for (const std::string_view param : {"start_factor", "div_factor", "final_div_factor"}) {
    if (Is(values, param, [](double v) { return v == 0.0; })) {
      Refuse(context, param, "must be above 0");
    }
  }
  for (const std::string_view param :
       {"cycle_min_mom", "cycle_max_mom", "base_momentum", "max_momentum"}) {
    if (Is(values, param, [](double v) { return v == 1.0; })) {
      Refuse(context, param, "must be below 1: the average would never move");
    }
  }
  if (values.Get(kType) != "OneCycleLR" || values.IsGiven(KeyOf("total_steps"))) return;
  if (values.IsGiven(KeyOf("epochs")) && values.IsGiven(KeyOf("steps_per_epoch"))) return;
  context.issues.Error(KeyOf("total_steps"),
                       "scheduler.type \"OneCycleLR\" needs scheduler.params.total_steps, or "
                       "epochs and steps_per_epoch",
                       values.PositionOf(kType));
}

// A list has a number for each parameter group; how many there are only the model says.
void ListsHaveOneLength(RuleContext& context) {
  const Values& values = context.values;
  const std::vector<std::string> keys = ListsOf(values);
  for (const std::string& key : keys) {
    const std::size_t size = values.Get(key).size(), first = values.Get(keys[0]).size();
    if (size == first) continue;
    context.issues.Error(key,
                         key + " has " + std::to_string(size) + " numbers and " + keys[0] +
                             " has " + std::to_string(first) +
                             ": give one for each parameter group",
                         values.PositionOf(key));
  }
}

// WarmupLR ends at the optimizer's lr unless told otherwise, WarmupDecayLR at 0.001 unless "auto".
void WarmupEndsAtTheLearningRate(RuleContext& context) {
  Values& values = context.values;
  const std::string key = KeyOf("warmup_max_lr");
  if (!values.Get(key).is_null()) return;
  const Json lr = values.Get("optimizer.params.lr");
  if (values.Get(kType) != "WarmupDecayLR") {
    values.Derive(key, lr, "derived from optimizer.params.lr");
    return;
  }
  if (values.autos().contains(key)) {
    values.Resolve(key, lr, "\"auto\": optimizer.params.lr", Values::Source::kAuto);
    return;
  }
  values.Derive(key, kDecayDefaultMaxLr, "default of scheduler.type WarmupDecayLR");
  if (lr == kDecayDefaultMaxLr) return;
  context.issues.Warning(key,
                         key + " is 0.001, WarmupDecayLR's default, and not optimizer.params.lr (" +
                             lr.dump() + "): give it to say which",
                         values.PositionOf(kType));
}

// Optimizers without betas: OneCycle leaves their momentum alone, as in DeepSpeed; PyTorch's cyclic
// schedules move SGD's, if it has one.
void CycledMomentumNeedsAPlace(RuleContext& context) {
  Values& values = context.values;
  const Json type = values.Get(kType);
  const Json optimizer = values.Get("optimizer.type");
  const bool is_torchs = type == "CyclicLR" || type == "OneCycleLR";
  const bool has_betas = optimizer != "SGD" && optimizer != "Adagrad";
  const bool cycles =
      (type == "OneCycle" || is_torchs) && ParamOf(values, "cycle_momentum") == true;
  if (!cycles || has_betas) return;
  if (is_torchs) {
    if (optimizer == "SGD" && values.Get("optimizer.params.momentum") != 0.0) return;
    Refuse(context, "cycle_momentum",
           "must be false with optimizer " + optimizer.dump() + ", which has no momentum");
    return;
  }
  context.issues.Warning(KeyOf("cycle_momentum"),
                         KeyOf("cycle_momentum") + " has no effect with optimizer " +
                             optimizer.dump() + ", which has no betas",
                         values.PositionOf(kType));
  values.Derive(KeyOf("cycle_momentum"), false, "derived from optimizer.type");
}

// OneCycle with momentum replaces both betas of the optimizer, beta2 by 0.99.
void OneCycleReplacesTheBetas(RuleContext& context) {
  Values& values = context.values;
  const bool cycles = values.Get(kType) == "OneCycle" && ParamOf(values, "cycle_momentum") == true;
  Json betas = values.Get("optimizer.params.betas");
  if (!cycles || betas.size() != 2 || betas[1] == kOneCycleBeta2) return;
  context.issues.Warning("optimizer.params.betas",
                         "optimizer.params.betas " + betas.dump() +
                             " is replaced by scheduler.type OneCycle with cycle_momentum: beta1 "
                             "cycles and beta2 is 0.99",
                         values.PositionOf(kType));
  betas[1] = kOneCycleBeta2;
  values.Derive("optimizer.params.betas", betas, "derived from scheduler.type OneCycle");
}

// How many numbers the lists among the parameters have; 0 without lists.
std::size_t GroupsOfLists(const Values& values) {
  const std::vector<std::string> keys = ListsOf(values);
  return keys.empty() ? 0 : values.Get(keys[0]).size();
}

constexpr Rule kRules[] = {
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

std::span<const Rule> SchedulerRules() { return kRules; }

void FillScheduler(const Values& values, DsConfig* config) {
  config->scheduler = FillSchedule(values, 0);
  for (std::size_t group = 0; group < GroupsOfLists(values); ++group) {
    config->group_schedules.push_back(FillSchedule(values, group));
  }
}

}  // namespace ds::config
