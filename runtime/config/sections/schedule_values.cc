#include <cstdint>
#include <optional>
#include <string>

#include "runtime/config/keys/keys.h"
#include "runtime/config/schedule_types.h"
#include "runtime/config/sections/sections.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr Key kType = keys::kSchedulerType;
constexpr Key kWarmupSteps = keys::kSchedulerParamsWarmupNumSteps;
constexpr Key kWarmupType = keys::kSchedulerParamsWarmupType;
constexpr Key kTotalSteps = keys::kSchedulerParamsTotalNumSteps;
constexpr Key kMinLr = keys::kSchedulerParamsMinLr;
constexpr Key kMinLrRate = keys::kSchedulerParamsMinLrRate;
constexpr Key kLrEnd = keys::kSchedulerParamsLrEnd;
constexpr Key kLr = keys::kOptimizerParamsLr;

// DeepSpeed and transformers use the same keys for warm-ups of different lengths and shapes.
void CheckWarmupLength(RuleContext& context) {
  const Values& values = context.values;
  const ScheduleType* const type = ChosenSchedule(values);
  if (type == nullptr || !type->Takes(kWarmupSteps)) return;
  const std::string with = " with scheduler.type " + values.Get(kType).dump() + ", not ";
  const Json shape = values.Get(kWarmupType);
  if (FindTransformersSchedule(type->name) != nullptr) {
    if (type->Takes(kWarmupType) && shape == "log") {
      context.Refuse(kWarmupType,
                     "must be \"linear\", \"cosine\" or \"1-sqrt\"" + with + "\"log\"");
    }
    return;
  }
  if (values.Get(kWarmupSteps) == 0) {
    context.Refuse(kWarmupSteps, "must be at least 1" + with + "0");
  }
  if (shape != "log" && shape != "linear") {
    context.Refuse(kWarmupType, "must be \"log\" or \"linear\"" + with + shape.dump());
  }
}

// get_scheduler fails for this, too.
void CheckLowestRate(RuleContext& context) {
  const Values& values = context.values;
  const ScheduleType* const type = ChosenSchedule(values);
  if (type == nullptr) return;
  const double lr = values.Get(kLr);
  if (type->Takes(kLrEnd) && values.Get(kLrEnd).get<double>() >= lr) {
    context.Refuse(kLrEnd, "must be below optimizer.params.lr, which is " + values.Get(kLr).dump());
  }
  if (!type->Takes(kMinLr)) return;
  const bool has_rate = values.IsGiven(kMinLr), has_share = values.IsGiven(kMinLrRate);
  if (has_rate == has_share) {
    context.issues.Error(kMinLr,
                         "scheduler.type \"" + std::string(type->name) + "\" needs " +
                             std::string(kMinLr) + " or " + std::string(kMinLrRate) +
                             (has_rate ? ", not both" : ""),
                         values.PositionOf(has_rate ? kMinLr : kType));
  } else if (has_rate && lr == 0.0) {
    context.Refuse(kMinLr, "is a share of optimizer.params.lr, which is 0: give min_lr_rate");
  }
}

// The update at which the schedule reaches its lowest rate, and the key that sets it.
struct End {
  Key key;
  std::int64_t update = 0;
};

std::optional<End> EndOf(const Values& values, const ScheduleType& type) {
  constexpr Key kStable = keys::kSchedulerParamsNumStableSteps;
  constexpr Key kIters = keys::kSchedulerParamsTotalIters;
  if (type.Takes(kStable) && values.IsGiven(kStable) && values.Get(kWarmupSteps).is_number()) {
    const std::int64_t decay = values.Get(keys::kSchedulerParamsNumDecaySteps);
    return End{kStable, values.Get(kWarmupSteps).get<std::int64_t>() +
                            values.Get(kStable).get<std::int64_t>() + decay};
  }
  if (type.Takes(kTotalSteps)) {
    const Json total = values.Get(kTotalSteps);
    return total.is_number() ? std::optional(End{kTotalSteps, total}) : std::nullopt;
  }
  const bool falls = type.name == "PolynomialLR" ||
                     (type.name == "LinearLR" && values.Get(keys::kSchedulerParamsEndFactor) <
                                                     values.Get(keys::kSchedulerParamsStartFactor));
  return falls ? std::optional(End{kIters, values.Get(kIters)}) : std::nullopt;
}

// Warns about a schedule that ends before the run; training may continue after it.
void CheckScheduleLength(RuleContext& context) {
  if (!context.facts.total_steps || !context.issues.errors().empty()) return;
  const auto end = FindEarlyEnd(context.values, *context.facts.total_steps);
  if (!end) return;
  context.issues.Warning(end->key, end->message, context.values.PositionOf(end->key));
}

constexpr Rule kRules[] = {
    {"CheckWarmupLength", {kType, kWarmupSteps, kWarmupType}, CheckWarmupLength},
    {"CheckLowestRate", {kLr, kMinLr, kMinLrRate, kLrEnd}, CheckLowestRate},
    {"CheckScheduleLength", {kType, kTotalSteps}, CheckScheduleLength},
};

}  // namespace

std::span<const Rule> ScheduleValueRules() { return kRules; }

std::optional<EarlyEnd> FindEarlyEnd(const Values& values, std::int64_t steps) {
  const ScheduleType* const type = ChosenSchedule(values);
  if (type == nullptr) return std::nullopt;
  const std::optional<End> end = EndOf(values, *type);
  if (!end || end->update >= steps) return std::nullopt;
  const std::string hint = type->Takes(kTotalSteps) ? "; \"auto\" for " + std::string(kTotalSteps) +
                                                          " is the steps of the run"
                                                    : "";
  return EarlyEnd{end->key,
                  std::string(end->key) + " is " + values.Get(end->key).dump() +
                      ", so that scheduler.type " + std::string(type->name) + " ends at step " +
                      std::to_string(end->update) + ", and the run has " + std::to_string(steps) +
                      " steps: the last ones train beyond the end of the schedule" + hint};
}

}  // namespace ds::config
