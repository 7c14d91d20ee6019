#include "runtime/config/transformers_schedule.h"

#include <string>
#include <utility>

#include "runtime/config/check/values.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/schedule_types.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr Key kWarmupSteps = keys::kSchedulerParamsWarmupNumSteps;
constexpr Key kTotalSteps = keys::kSchedulerParamsTotalNumSteps;

// The two lengths that Trainer computes have DeepSpeed's names, so that flags and "auto" fill them
// alike. The other parameters are its lr_scheduler_kwargs.
constexpr ScheduleParam kHfWarmup[] = {{kWarmupSteps, "0"}};
constexpr ScheduleParam kHfLinear[] = {{kWarmupSteps, "0"}, {kTotalSteps, "required"}};
constexpr ScheduleParam kHfCosine[] = {
    {kWarmupSteps, "0"}, {kTotalSteps, "required"}, {keys::kSchedulerParamsNumCycles, "0.5"}};
constexpr ScheduleParam kHfRestarts[] = {
    {kWarmupSteps, "0"}, {kTotalSteps, "required"}, {keys::kSchedulerParamsNumCycles, "1.0"}};
constexpr ScheduleParam kHfPolynomial[] = {{kWarmupSteps, "0"},
                                           {kTotalSteps, "required"},
                                           {keys::kSchedulerParamsLrEnd, "1e-7"},
                                           {keys::kSchedulerParamsPower, "1.0"}};
constexpr ScheduleParam kHfInverseSqrt[] = {{kWarmupSteps, "0"},
                                            {keys::kSchedulerParamsTimescale, "null"}};
constexpr ScheduleParam kHfCosineMinLr[] = {{kWarmupSteps, "0"},
                                            {kTotalSteps, "required"},
                                            {keys::kSchedulerParamsNumCycles, "0.5"},
                                            {keys::kSchedulerParamsMinLr, "null"},
                                            {keys::kSchedulerParamsMinLrRate, "null"}};
constexpr ScheduleParam kHfCosineWarmup[] = {{kWarmupSteps, "0"},
                                             {kTotalSteps, "required"},
                                             {keys::kSchedulerParamsNumCycles, "0.5"},
                                             {keys::kSchedulerParamsMinLr, "null"},
                                             {keys::kSchedulerParamsMinLrRate, "null"},
                                             {keys::kSchedulerParamsWarmupLrRate, "null"}};
constexpr ScheduleParam kHfStable[] = {{kWarmupSteps, "0"},
                                       {kTotalSteps, "required"},
                                       {keys::kSchedulerParamsNumStableSteps, "null"},
                                       {keys::kSchedulerParamsNumDecaySteps, "required"},
                                       {keys::kSchedulerParamsWarmupType, "\"linear\""},
                                       {keys::kSchedulerParamsDecayType, "\"cosine\""},
                                       {keys::kSchedulerParamsMinLrRatio, "0.0"},
                                       {keys::kSchedulerParamsNumCycles, "0.5"}};

std::string NameOfParam(Key key) {
  return std::string(key.substr(keys::kSchedulerParams.size() + 1));
}

// Returns 0 while the value is still "auto": the run resolves it (JobFacts::steps_come_later).
std::int64_t StepsAt(const Values& values, Key key) {
  const Json steps = values.Get(key);
  return steps.is_number() ? steps.get<std::int64_t>() : 0;
}

Schedule FillHfConstant(const Values&) { return ConstantRate{}; }

Schedule FillHfWarmup(const Values& v) { return HfConstantWithWarmup{StepsAt(v, kWarmupSteps)}; }

Schedule FillHfLinear(const Values& v) {
  return HfLinear{.warmup = StepsAt(v, kWarmupSteps), .total = StepsAt(v, kTotalSteps)};
}

// Returns the lowest rate as a fraction of the optimizer's rate.
double MinRate(const Values& v) {
  const Json lowest = v.Get(keys::kSchedulerParamsMinLr);
  if (lowest.is_null()) return v.Get(keys::kSchedulerParamsMinLrRate);
  return lowest.get<double>() / v.Get(keys::kOptimizerParamsLr).get<double>();
}

Schedule FillHfCosine(const Values& v) {
  return HfCosine{.warmup = StepsAt(v, kWarmupSteps),
                  .total = StepsAt(v, kTotalSteps),
                  .cycles = v.Get(keys::kSchedulerParamsNumCycles)};
}

Schedule FillHfCosineMinLr(const Values& v) {
  auto cosine = std::get<HfCosine>(FillHfCosine(v));
  cosine.min_rate = MinRate(v);
  return cosine;
}

Schedule FillHfRestarts(const Values& v) {
  return HfCosineWithRestarts{.warmup = StepsAt(v, kWarmupSteps),
                              .total = StepsAt(v, kTotalSteps),
                              .cycles = v.Get(keys::kSchedulerParamsNumCycles)};
}

Schedule FillHfCosineWarmup(const Values& v) {
  HfCosineWarmupWithMinLr cosine{.warmup = StepsAt(v, kWarmupSteps),
                                 .total = StepsAt(v, kTotalSteps),
                                 .cycles = v.Get(keys::kSchedulerParamsNumCycles),
                                 .min_rate = MinRate(v)};
  const Json first = v.Get(keys::kSchedulerParamsWarmupLrRate);
  if (!first.is_null()) cosine.warmup_rate = first.get<double>();
  return cosine;
}

Schedule FillHfPolynomial(const Values& v) {
  return HfPolynomial{.warmup = StepsAt(v, kWarmupSteps),
                      .total = StepsAt(v, kTotalSteps),
                      .lr = v.Get(keys::kOptimizerParamsLr),
                      .lr_end = v.Get(keys::kSchedulerParamsLrEnd),
                      .power = v.Get(keys::kSchedulerParamsPower)};
}

Schedule FillHfInverseSqrt(const Values& v) {
  HfInverseSqrt schedule{.warmup = StepsAt(v, kWarmupSteps)};
  const Json timescale = v.Get(keys::kSchedulerParamsTimescale);
  if (schedule.warmup > 0) schedule.timescale = schedule.warmup;
  if (!timescale.is_null()) schedule.timescale = timescale.get<std::int64_t>();
  return schedule;
}

WsdShape ShapeOf(const Json& name) {
  if (name == "cosine") return WsdShape::kCosine;
  return name == "1-sqrt" ? WsdShape::kOneMinusSqrt : WsdShape::kLinear;
}

Schedule FillHfStable(const Values& v) {
  HfWarmupStableDecay schedule{.warmup = StepsAt(v, kWarmupSteps),
                               .decay = v.Get(keys::kSchedulerParamsNumDecaySteps),
                               .warmup_shape = ShapeOf(v.Get(keys::kSchedulerParamsWarmupType)),
                               .decay_shape = ShapeOf(v.Get(keys::kSchedulerParamsDecayType)),
                               .min_ratio = v.Get(keys::kSchedulerParamsMinLrRatio),
                               .cycles = v.Get(keys::kSchedulerParamsNumCycles)};
  const Json stable = v.Get(keys::kSchedulerParamsNumStableSteps);
  schedule.stable = stable.is_null() ? StepsAt(v, kTotalSteps) - schedule.warmup - schedule.decay
                                     : stable.get<std::int64_t>();
  return schedule;
}

template <Schedule (*fill)(const Values&)>
Schedule FillHf(const Values& values, std::size_t /*group*/) {
  return fill(values);
}

constexpr ScheduleType kHfTypes[] = {
    {"constant", {}, FillHf<FillHfConstant>},
    {"constant_with_warmup", kHfWarmup, FillHf<FillHfWarmup>},
    {"linear", kHfLinear, FillHf<FillHfLinear>},
    {"cosine", kHfCosine, FillHf<FillHfCosine>},
    {"cosine_with_restarts", kHfRestarts, FillHf<FillHfRestarts>},
    {"polynomial", kHfPolynomial, FillHf<FillHfPolynomial>},
    {"inverse_sqrt", kHfInverseSqrt, FillHf<FillHfInverseSqrt>},
    {"cosine_with_min_lr", kHfCosineMinLr, FillHf<FillHfCosineMinLr>},
    {"cosine_warmup_with_min_lr", kHfCosineWarmup, FillHf<FillHfCosineWarmup>},
    {"warmup_stable_decay", kHfStable, FillHf<FillHfStable>}};

}  // namespace

std::span<const ScheduleType> TransformersSchedules() { return kHfTypes; }

const ScheduleType* FindTransformersSchedule(std::string_view name) {
  for (const ScheduleType& type : kHfTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

Json MakeTransformersSection(const ScheduleType& type, const Json& kwargs) {
  Json params = Json::object();
  for (const Key key : {kWarmupSteps, kTotalSteps}) {
    if (type.Takes(key)) params[NameOfParam(key)] = "auto";
  }
  for (const auto& [name, value] : kwargs.items()) params[name] = value;
  return {{"type", type.name}, {"params", std::move(params)}};
}

std::vector<std::string> KwargNames(const ScheduleType& type) {
  std::vector<std::string> names;
  for (const ScheduleParam& param : type.params) {
    if (param.key != kWarmupSteps && param.key != kTotalSteps) {
      names.push_back(NameOfParam(param.key));
    }
  }
  return names;
}

}  // namespace ds::config
