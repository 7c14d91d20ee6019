#include "runtime/config/schedule_types.h"

#include <algorithm>

#include "runtime/config/check/values.h"
#include "runtime/config/keys/keys.h"
#include "runtime/config/keys/registry.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kRegistryDefault;
constexpr std::string_view kRequired = "required";

constexpr ScheduleParam kLrRangeTest[] = {
    {keys::kSchedulerParamsLrRangeTestMinLr, kRegistryDefault},
    {keys::kSchedulerParamsLrRangeTestStepSize, kRegistryDefault},
    {keys::kSchedulerParamsLrRangeTestStepRate, kRegistryDefault},
    {keys::kSchedulerParamsLrRangeTestStaircase, kRegistryDefault}};
constexpr ScheduleParam kOneCycle[] = {
    {keys::kSchedulerParamsCycleMinLr, kRequired},
    {keys::kSchedulerParamsCycleMaxLr, kRequired},
    {keys::kSchedulerParamsDecayLrRate, kRegistryDefault},
    {keys::kSchedulerParamsCycleFirstStepSize, kRegistryDefault},
    {keys::kSchedulerParamsCycleSecondStepSize, kRegistryDefault},
    {keys::kSchedulerParamsCycleFirstStairCount, kRegistryDefault},
    {keys::kSchedulerParamsCycleSecondStairCount, kRegistryDefault},
    {keys::kSchedulerParamsDecayStepSize, kRegistryDefault},
    {keys::kSchedulerParamsCycleMomentum, kRegistryDefault},
    {keys::kSchedulerParamsCycleMinMom, kRegistryDefault},
    {keys::kSchedulerParamsCycleMaxMom, kRegistryDefault},
    {keys::kSchedulerParamsDecayMomRate, kRegistryDefault}};
constexpr ScheduleParam kWarmup[] = {{keys::kSchedulerParamsWarmupMinLr, kRegistryDefault},
                                     {keys::kSchedulerParamsWarmupMaxLr, kRegistryDefault},
                                     {keys::kSchedulerParamsWarmupNumSteps, kRegistryDefault},
                                     {keys::kSchedulerParamsWarmupType, kRegistryDefault}};
constexpr ScheduleParam kWarmupDecay[] = {{keys::kSchedulerParamsTotalNumSteps, kRequired},
                                          {keys::kSchedulerParamsWarmupMinLr, kRegistryDefault},
                                          {keys::kSchedulerParamsWarmupMaxLr, kRegistryDefault},
                                          {keys::kSchedulerParamsWarmupNumSteps, kRegistryDefault},
                                          {keys::kSchedulerParamsWarmupType, kRegistryDefault}};
constexpr ScheduleParam kWarmupCosine[] = {{keys::kSchedulerParamsTotalNumSteps, kRequired},
                                           {keys::kSchedulerParamsWarmupMinRatio, kRegistryDefault},
                                           {keys::kSchedulerParamsWarmupNumSteps, kRegistryDefault},
                                           {keys::kSchedulerParamsCosMinRatio, kRegistryDefault},
                                           {keys::kSchedulerParamsWarmupType, kRegistryDefault}};
constexpr ScheduleParam kStep[] = {{keys::kSchedulerParamsStepSize, kRequired},
                                   {keys::kSchedulerParamsGamma, "0.1"}};
constexpr ScheduleParam kMultiStep[] = {{keys::kSchedulerParamsMilestones, kRequired},
                                        {keys::kSchedulerParamsGamma, "0.1"}};
// The default of "factor" and "start_factor" is 1/3 as a double.
constexpr ScheduleParam kConstant[] = {{keys::kSchedulerParamsFactor, "0.3333333333333333"},
                                       {keys::kSchedulerParamsTotalIters, "5"}};
constexpr ScheduleParam kLinear[] = {{keys::kSchedulerParamsStartFactor, "0.3333333333333333"},
                                     {keys::kSchedulerParamsEndFactor, "1.0"},
                                     {keys::kSchedulerParamsTotalIters, "5"}};
constexpr ScheduleParam kExponential[] = {{keys::kSchedulerParamsGamma, kRequired}};
constexpr ScheduleParam kPolynomial[] = {{keys::kSchedulerParamsTotalIters, "5"},
                                         {keys::kSchedulerParamsPower, "1.0"}};
constexpr ScheduleParam kCosineAnnealing[] = {{keys::kSchedulerParamsTMax, kRequired},
                                              {keys::kSchedulerParamsEtaMin, "0.0"}};
constexpr ScheduleParam kWarmRestarts[] = {{keys::kSchedulerParamsT0, kRequired},
                                           {keys::kSchedulerParamsTMult, "1"},
                                           {keys::kSchedulerParamsEtaMin, "0.0"}};
constexpr ScheduleParam kCyclic[] = {{keys::kSchedulerParamsBaseLr, kRequired},
                                     {keys::kSchedulerParamsMaxLr, kRequired},
                                     {keys::kSchedulerParamsStepSizeUp, "2000"},
                                     {keys::kSchedulerParamsStepSizeDown, "null"},
                                     {keys::kSchedulerParamsMode, "\"triangular\""},
                                     {keys::kSchedulerParamsGamma, "1.0"},
                                     {keys::kSchedulerParamsCycleMomentum, kRegistryDefault},
                                     {keys::kSchedulerParamsBaseMomentum, "0.8"},
                                     {keys::kSchedulerParamsMaxMomentum, "0.9"}};
constexpr ScheduleParam kOneCycleLr[] = {{keys::kSchedulerParamsMaxLr, kRequired},
                                         {keys::kSchedulerParamsTotalSteps, "null"},
                                         {keys::kSchedulerParamsEpochs, "null"},
                                         {keys::kSchedulerParamsStepsPerEpoch, "null"},
                                         {keys::kSchedulerParamsPctStart, "0.3"},
                                         {keys::kSchedulerParamsAnnealStrategy, "\"cos\""},
                                         {keys::kSchedulerParamsCycleMomentum, kRegistryDefault},
                                         {keys::kSchedulerParamsBaseMomentum, "0.85"},
                                         {keys::kSchedulerParamsMaxMomentum, "0.95"},
                                         {keys::kSchedulerParamsDivFactor, "25.0"},
                                         {keys::kSchedulerParamsFinalDivFactor, "1e4"},
                                         {keys::kSchedulerParamsThreePhase, kRegistryDefault}};

// Reads the parameters of a schedule for one parameter group.
class Params {
 public:
  Params(const Values& values, std::size_t group) : values_(values), group_(group) {}

  Json operator[](Key key) const {
    const Json value = values_.Get(key);
    return FindSetting(key)->per_group && value.is_array() ? value.at(group_) : value;
  }
  // Returns the value of `key`, or of `otherwise` if that is null.
  Json Or(Key key, Key otherwise) const {
    Json value = (*this)[key];
    return value.is_null() ? (*this)[otherwise] : value;
  }
  // Returns 0 while the value is still "auto": the run resolves it (JobFacts::steps_come_later).
  std::int64_t Steps(Key key) const {
    const Json steps = (*this)[key];
    return steps.is_number() ? steps.get<std::int64_t>() : 0;
  }
  std::int64_t total_num_steps() const { return Steps(keys::kSchedulerParamsTotalNumSteps); }
  std::int64_t warmup_num_steps() const { return Steps(keys::kSchedulerParamsWarmupNumSteps); }
  WarmupType warmup_type() const {
    return (*this)[keys::kSchedulerParamsWarmupType] == "linear" ? WarmupType::kLinear
                                                                 : WarmupType::kLog;
  }

 private:
  const Values& values_;
  std::size_t group_;
};

Schedule FillLrRangeTest(const Params& p) {
  return LrRangeTest{.min_lr = p[keys::kSchedulerParamsLrRangeTestMinLr],
                     .step_size = p[keys::kSchedulerParamsLrRangeTestStepSize],
                     .step_rate = p[keys::kSchedulerParamsLrRangeTestStepRate],
                     .staircase = p[keys::kSchedulerParamsLrRangeTestStaircase]};
}

Schedule FillOneCycle(const Params& p) {
  return OneCycle{.min_lr = p[keys::kSchedulerParamsCycleMinLr],
                  .max_lr = p[keys::kSchedulerParamsCycleMaxLr],
                  .decay_lr_rate = p[keys::kSchedulerParamsDecayLrRate],
                  .first_step_size = p[keys::kSchedulerParamsCycleFirstStepSize],
                  .second_step_size = p.Or(keys::kSchedulerParamsCycleSecondStepSize,
                                           keys::kSchedulerParamsCycleFirstStepSize),
                  .first_stair_count = p[keys::kSchedulerParamsCycleFirstStairCount],
                  .second_stair_count = p.Or(keys::kSchedulerParamsCycleSecondStairCount,
                                             keys::kSchedulerParamsCycleFirstStairCount),
                  .decay_step_size = p[keys::kSchedulerParamsDecayStepSize],
                  .cycle_momentum = p[keys::kSchedulerParamsCycleMomentum],
                  .min_mom = p[keys::kSchedulerParamsCycleMinMom],
                  .max_mom = p[keys::kSchedulerParamsCycleMaxMom],
                  .decay_mom_rate = p[keys::kSchedulerParamsDecayMomRate]};
}

WarmupLr Warmup(const Params& p) {
  WarmupLr warmup{.min_lr = p[keys::kSchedulerParamsWarmupMinLr],
                  .num_steps = p.warmup_num_steps(),
                  .type = p.warmup_type()};
  const Json end = p[keys::kSchedulerParamsWarmupMaxLr];
  if (!end.is_null()) warmup.max_lr = end.get<double>();
  return warmup;
}

Schedule FillWarmup(const Params& p) { return Warmup(p); }

Schedule FillWarmupDecay(const Params& p) {
  WarmupLr warmup = Warmup(p);
  warmup.total_num_steps = p.total_num_steps();
  return warmup;
}

Schedule FillWarmupCosine(const Params& p) {
  return WarmupCosineLr{.total_num_steps = p.total_num_steps(),
                        .min_ratio = p[keys::kSchedulerParamsWarmupMinRatio],
                        .num_steps = p.warmup_num_steps(),
                        .cos_min_ratio = p[keys::kSchedulerParamsCosMinRatio],
                        .type = p.warmup_type()};
}

Schedule FillStep(const Params& p) {
  return StepLr{.step_size = p[keys::kSchedulerParamsStepSize],
                .gamma = p[keys::kSchedulerParamsGamma]};
}

Schedule FillMultiStep(const Params& p) {
  return MultiStepLr{.milestones = p[keys::kSchedulerParamsMilestones],
                     .gamma = p[keys::kSchedulerParamsGamma]};
}

Schedule FillConstant(const Params& p) {
  return ConstantLr{.factor = p[keys::kSchedulerParamsFactor],
                    .total_iters = p[keys::kSchedulerParamsTotalIters]};
}

Schedule FillLinear(const Params& p) {
  return LinearLr{.start_factor = p[keys::kSchedulerParamsStartFactor],
                  .end_factor = p[keys::kSchedulerParamsEndFactor],
                  .total_iters = p[keys::kSchedulerParamsTotalIters]};
}

Schedule FillExponential(const Params& p) {
  return ExponentialLr{.gamma = p[keys::kSchedulerParamsGamma]};
}

Schedule FillPolynomial(const Params& p) {
  return PolynomialLr{.total_iters = p[keys::kSchedulerParamsTotalIters],
                      .power = p[keys::kSchedulerParamsPower]};
}

Schedule FillCosineAnnealing(const Params& p) {
  return CosineAnnealingLr{.t_max = p[keys::kSchedulerParamsTMax],
                           .eta_min = p[keys::kSchedulerParamsEtaMin]};
}

Schedule FillWarmRestarts(const Params& p) {
  return CosineAnnealingWarmRestarts{.t_0 = p[keys::kSchedulerParamsT0],
                                     .t_mult = p[keys::kSchedulerParamsTMult],
                                     .eta_min = p[keys::kSchedulerParamsEtaMin]};
}

Schedule FillCyclic(const Params& p) {
  CyclicLr cyclic{
      .base_lr = p[keys::kSchedulerParamsBaseLr],
      .max_lr = p[keys::kSchedulerParamsMaxLr],
      .step_size_up = p[keys::kSchedulerParamsStepSizeUp],
      .step_size_down = p.Or(keys::kSchedulerParamsStepSizeDown, keys::kSchedulerParamsStepSizeUp),
      .gamma = p[keys::kSchedulerParamsGamma],
      .cycle_momentum = p[keys::kSchedulerParamsCycleMomentum],
      .base_momentum = p[keys::kSchedulerParamsBaseMomentum],
      .max_momentum = p[keys::kSchedulerParamsMaxMomentum]};
  if (p[keys::kSchedulerParamsMode] == "triangular2") cyclic.mode = CyclicMode::kTriangular2;
  if (p[keys::kSchedulerParamsMode] == "exp_range") cyclic.mode = CyclicMode::kExpRange;
  return cyclic;
}

Schedule FillOneCycleLr(const Params& p) {
  const Json total = p[keys::kSchedulerParamsTotalSteps];
  return OneCycleLr{
      .max_lr = p[keys::kSchedulerParamsMaxLr],
      .total_steps = total.is_null()
                         ? p[keys::kSchedulerParamsEpochs].get<std::int64_t>() *
                               p[keys::kSchedulerParamsStepsPerEpoch].get<std::int64_t>()
                         : total.get<std::int64_t>(),
      .pct_start = p[keys::kSchedulerParamsPctStart],
      .linear_anneal = p[keys::kSchedulerParamsAnnealStrategy] == "linear",
      .cycle_momentum = p[keys::kSchedulerParamsCycleMomentum],
      .base_momentum = p[keys::kSchedulerParamsBaseMomentum],
      .max_momentum = p[keys::kSchedulerParamsMaxMomentum],
      .div_factor = p[keys::kSchedulerParamsDivFactor],
      .final_div_factor = p[keys::kSchedulerParamsFinalDivFactor],
      .three_phase = p[keys::kSchedulerParamsThreePhase]};
}

template <Schedule (*fill)(const Params&)>
Schedule Fill(const Values& values, std::size_t group) {
  return fill(Params(values, group));
}

constexpr ScheduleType kScheduleTypes[] = {
    {"LRRangeTest", kLrRangeTest, Fill<FillLrRangeTest>},
    {"OneCycle", kOneCycle, Fill<FillOneCycle>},
    {"WarmupLR", kWarmup, Fill<FillWarmup>},
    {"WarmupDecayLR", kWarmupDecay, Fill<FillWarmupDecay>},
    {"WarmupCosineLR", kWarmupCosine, Fill<FillWarmupCosine>},
    {"StepLR", kStep, Fill<FillStep>},
    {"MultiStepLR", kMultiStep, Fill<FillMultiStep>},
    {"ConstantLR", kConstant, Fill<FillConstant>},
    {"LinearLR", kLinear, Fill<FillLinear>},
    {"ExponentialLR", kExponential, Fill<FillExponential>},
    {"PolynomialLR", kPolynomial, Fill<FillPolynomial>},
    {"CosineAnnealingLR", kCosineAnnealing, Fill<FillCosineAnnealing>},
    {"CosineAnnealingWarmRestarts", kWarmRestarts, Fill<FillWarmRestarts>},
    {"CyclicLR", kCyclic, Fill<FillCyclic>},
    {"OneCycleLR", kOneCycleLr, Fill<FillOneCycleLr>}};

}  // namespace

bool ScheduleType::Takes(Key key) const {
  return std::any_of(params.begin(), params.end(),
                     [&](const ScheduleParam& param) { return param.key == key; });
}

const ScheduleType* ChosenSchedule(const Values& values) {
  const Json name = values.Get(keys::kSchedulerType);
  for (const auto types :
       {std::span<const ScheduleType>(kScheduleTypes), TransformersSchedules()}) {
    for (const ScheduleType& type : types) {
      if (name == type.name) return &type;
    }
  }
  return nullptr;
}

}  // namespace ds::config
