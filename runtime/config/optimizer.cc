#include "runtime/config/optimizer.h"

#include "runtime/config/check/values.h"
#include "runtime/config/keys/keys.h"

namespace ds::config {
namespace {

constexpr OptimizerParam kAdam[] = {
    {keys::kOptimizerParamsBetas},          {keys::kOptimizerParamsEps},
    {keys::kOptimizerParamsBiasCorrection}, {keys::kOptimizerParamsAdamWMode},
    {keys::kOptimizerParamsTorchAdam},      {keys::kOptimizerParamsFp32OptimizerStates},
    {keys::kOptimizerParamsSetGradNone},    {keys::kOptimizerParamsForeach},
    {keys::kOptimizerParamsFused},          {keys::kOptimizerParamsCapturable}};
constexpr OptimizerParam kMuAdam[] = {{keys::kOptimizerParamsBetas},
                                      {keys::kOptimizerParamsEps},
                                      {keys::kOptimizerParamsBaseShapes},
                                      {keys::kOptimizerParamsAdamWMode, "false", true}};
constexpr OptimizerParam kMuAdamW[] = {
    {keys::kOptimizerParamsBetas}, {keys::kOptimizerParamsEps}, {keys::kOptimizerParamsBaseShapes}};
// bitsandbytes decays weights in both types as AdamW does.
constexpr OptimizerParam kAdam8bit[] = {{keys::kOptimizerParamsBetas},
                                        {keys::kOptimizerParamsEps},
                                        {keys::kOptimizerParamsAdamWMode, "true", true}};
constexpr OptimizerParam kAdamW8bit[] = {{keys::kOptimizerParamsWeightDecay, "0.01"},
                                         {keys::kOptimizerParamsBetas},
                                         {keys::kOptimizerParamsEps},
                                         {keys::kOptimizerParamsAdamWMode, "true", true}};
constexpr OptimizerParam kSgd[] = {{keys::kOptimizerParamsMomentum, "0.0"},
                                   {keys::kOptimizerParamsDampening},
                                   {keys::kOptimizerParamsNesterov},
                                   {keys::kOptimizerParamsForeach},
                                   {keys::kOptimizerParamsFused}};
constexpr OptimizerParam kMuSgd[] = {{keys::kOptimizerParamsMomentum, "0.0"},
                                     {keys::kOptimizerParamsDampening},
                                     {keys::kOptimizerParamsNesterov},
                                     {keys::kOptimizerParamsBaseShapes}};
constexpr OptimizerParam kAdagrad[] = {
    {keys::kOptimizerParamsLr, "0.01"}, {keys::kOptimizerParamsEps, "1e-10"},
    {keys::kOptimizerParamsLrDecay},    {keys::kOptimizerParamsFp32OptimizerStates},
    {keys::kOptimizerParamsForeach},    {keys::kOptimizerParamsFused}};
constexpr OptimizerParam kLion[] = {{keys::kOptimizerParamsBetas},
                                    {keys::kOptimizerParamsFp32OptimizerStates},
                                    {keys::kOptimizerParamsSetGradNone}};
constexpr OptimizerParam kLamb[] = {
    {keys::kOptimizerParamsBetas},          {keys::kOptimizerParamsEps},
    {keys::kOptimizerParamsBiasCorrection}, {keys::kOptimizerParamsEpsInsideSqrt},
    {keys::kOptimizerParamsMinCoeff},       {keys::kOptimizerParamsMaxCoeff}};
constexpr OptimizerParam kMuon[] = {{keys::kOptimizerParamsBetas, "[0.9, 0.95]"},
                                    {keys::kOptimizerParamsEps, "1e-10"},
                                    {keys::kOptimizerParamsAdamWMode},
                                    {keys::kOptimizerParamsTorchAdam},
                                    {keys::kOptimizerParamsFp32OptimizerStates},
                                    {keys::kOptimizerParamsMomentum},
                                    {keys::kOptimizerParamsMuonLr},
                                    {keys::kOptimizerParamsAdamLr},
                                    {keys::kOptimizerParamsNsMethod}};
constexpr OptimizerParam kOneBitAdam[] = {
    {keys::kOptimizerParamsBetas},          {keys::kOptimizerParamsEps},
    {keys::kOptimizerParamsBiasCorrection}, {keys::kOptimizerParamsFreezeStep},
    {keys::kOptimizerParamsCudaAware},      {keys::kOptimizerParamsCommBackendName}};
constexpr OptimizerParam kOneBitLamb[] = {
    {keys::kOptimizerParamsBetas},          {keys::kOptimizerParamsEps},
    {keys::kOptimizerParamsBiasCorrection}, {keys::kOptimizerParamsMinCoeff},
    {keys::kOptimizerParamsMaxCoeff},       {keys::kOptimizerParamsFreezeStep},
    {keys::kOptimizerParamsCudaAware},      {keys::kOptimizerParamsCommBackendName},
    {keys::kOptimizerParamsCoeffBeta},      {keys::kOptimizerParamsFactorMax},
    {keys::kOptimizerParamsFactorMin},      {keys::kOptimizerParamsFactorThreshold}};
constexpr OptimizerParam kZeroOneAdam[] = {
    {keys::kOptimizerParamsBetas},           {keys::kOptimizerParamsEps},
    {keys::kOptimizerParamsBiasCorrection},  {keys::kOptimizerParamsCudaAware},
    {keys::kOptimizerParamsCommBackendName}, {keys::kOptimizerParamsVarFreezeStep},
    {keys::kOptimizerParamsVarUpdateScaler}, {keys::kOptimizerParamsLocalStepScaler},
    {keys::kOptimizerParamsLocalStepClipper}};

double Beta1(const Values& values) { return values.Get(keys::kOptimizerParamsBetas).at(0); }
double Beta2(const Values& values) { return values.Get(keys::kOptimizerParamsBetas).at(1); }
double Eps(const Values& values) { return values.Get(keys::kOptimizerParamsEps); }

AdamConfig AdamOf(const Values& values) {
  return {.beta1 = Beta1(values),
          .beta2 = Beta2(values),
          .eps = Eps(values),
          .adam_w_mode = values.Get(keys::kOptimizerParamsAdamWMode),
          .bias_correction = values.Get(keys::kOptimizerParamsBiasCorrection)};
}

OptimizerAlgorithm FillAdam(const Values& values) { return AdamOf(values); }

OptimizerAlgorithm FillSgd(const Values& values) {
  return SgdConfig{.momentum = values.Get(keys::kOptimizerParamsMomentum),
                   .dampening = values.Get(keys::kOptimizerParamsDampening),
                   .nesterov = values.Get(keys::kOptimizerParamsNesterov)};
}

OptimizerAlgorithm FillAdagrad(const Values& values) {
  return AdagradConfig{.eps = Eps(values), .lr_decay = values.Get(keys::kOptimizerParamsLrDecay)};
}

OptimizerAlgorithm FillLion(const Values& values) {
  return LionConfig{.beta1 = Beta1(values), .beta2 = Beta2(values)};
}

OptimizerAlgorithm FillLamb(const Values& values) {
  return LambConfig{.beta1 = Beta1(values),
                    .beta2 = Beta2(values),
                    .eps = Eps(values),
                    .bias_correction = values.Get(keys::kOptimizerParamsBiasCorrection),
                    .eps_inside_sqrt = values.Get(keys::kOptimizerParamsEpsInsideSqrt),
                    .min_coeff = values.Get(keys::kOptimizerParamsMinCoeff),
                    .max_coeff = values.Get(keys::kOptimizerParamsMaxCoeff)};
}

OptimizerAlgorithm FillMuon(const Values& values) {
  const bool gram = values.Get(keys::kOptimizerParamsNsMethod) == "gram";
  return MuonConfig{.momentum = values.Get(keys::kOptimizerParamsMomentum),
                    .newton_schulz = gram ? NewtonSchulz::kGram : NewtonSchulz::kStandard,
                    .adam_lr = values.Get(keys::kOptimizerParamsAdamLr),
                    .adam = AdamOf(values)};
}

OptimizerAlgorithm FillOneBitAdam(const Values& values) {
  return OneBitAdamConfig{.beta1 = Beta1(values),
                          .beta2 = Beta2(values),
                          .eps = Eps(values),
                          .freeze_step = values.Get(keys::kOptimizerParamsFreezeStep)};
}

OptimizerAlgorithm FillOneBitLamb(const Values& values) {
  return OneBitLambConfig{.beta1 = Beta1(values),
                          .beta2 = Beta2(values),
                          .eps = Eps(values),
                          .min_coeff = values.Get(keys::kOptimizerParamsMinCoeff),
                          .max_coeff = values.Get(keys::kOptimizerParamsMaxCoeff),
                          .freeze_step = values.Get(keys::kOptimizerParamsFreezeStep),
                          .coeff_beta = values.Get(keys::kOptimizerParamsCoeffBeta),
                          .factor_max = values.Get(keys::kOptimizerParamsFactorMax),
                          .factor_min = values.Get(keys::kOptimizerParamsFactorMin),
                          .factor_threshold = values.Get(keys::kOptimizerParamsFactorThreshold)};
}

OptimizerAlgorithm FillZeroOneAdam(const Values& values) {
  return ZeroOneAdamConfig{
      .beta1 = Beta1(values),
      .beta2 = Beta2(values),
      .eps = Eps(values),
      .var_freeze_step = values.Get(keys::kOptimizerParamsVarFreezeStep),
      .var_update_scaler = values.Get(keys::kOptimizerParamsVarUpdateScaler),
      .local_step_scaler = values.Get(keys::kOptimizerParamsLocalStepScaler),
      .local_step_clipper = values.Get(keys::kOptimizerParamsLocalStepClipper)};
}

template <typename Algorithm>
constexpr Reach kReach = Reach::kModel;
template <>
constexpr Reach kReach<AdamConfig> = Reach::kElement;
template <>
constexpr Reach kReach<SgdConfig> = Reach::kElement;
template <>
constexpr Reach kReach<AdagradConfig> = Reach::kElement;
template <>
constexpr Reach kReach<LionConfig> = Reach::kElement;
template <>
constexpr Reach kReach<LambConfig> = Reach::kRange;
template <>
constexpr Reach kReach<MuonConfig> = Reach::kRange;

constexpr OptimizerType kOptimizerTypes[] = {
    {.name = "Adam",
     .params = kAdam,
     .fill = FillAdam,
     .is_elementwise = kReach<AdamConfig> == Reach::kElement,
     .takes_narrow_masters = true},
    {.name = "AdamW",
     .params = kAdam,
     .fill = FillAdam,
     .is_elementwise = kReach<AdamConfig> == Reach::kElement,
     .takes_narrow_masters = true},
    {.name = "Adam8bit", .params = kAdam8bit, .fill = FillAdam, .is_blockwise = true},
    {.name = "AdamW8bit", .params = kAdamW8bit, .fill = FillAdam, .is_blockwise = true},
    {.name = "MuAdam",
     .params = kMuAdam,
     .fill = FillAdam,
     .is_elementwise = kReach<AdamConfig> == Reach::kElement},
    {.name = "MuAdamW",
     .params = kMuAdamW,
     .fill = FillAdam,
     .is_elementwise = kReach<AdamConfig> == Reach::kElement},
    {.name = "SGD",
     .params = kSgd,
     .fill = FillSgd,
     .is_elementwise = kReach<SgdConfig> == Reach::kElement,
     .takes_narrow_masters = true},
    {.name = "MuSGD",
     .params = kMuSgd,
     .fill = FillSgd,
     .is_elementwise = kReach<SgdConfig> == Reach::kElement},
    {.name = "Adagrad",
     .params = kAdagrad,
     .fill = FillAdagrad,
     .is_elementwise = kReach<AdagradConfig> == Reach::kElement,
     .takes_narrow_masters = true},
    {.name = "Lion",
     .params = kLion,
     .fill = FillLion,
     .is_elementwise = kReach<LionConfig> == Reach::kElement,
     .takes_narrow_masters = true},
    {.name = "Lamb", .params = kLamb, .fill = FillLamb},
    {.name = "Muon", .params = kMuon, .fill = FillMuon},
    {.name = "OneBitAdam", .params = kOneBitAdam, .fill = FillOneBitAdam},
    {.name = "OneBitLamb", .params = kOneBitLamb, .fill = FillOneBitLamb},
    {.name = "ZeroOneAdam", .params = kZeroOneAdam, .fill = FillZeroOneAdam}};

template <typename Algorithm>
int CountStates(const Algorithm&) {
  return 2;
}
int CountStates(const SgdConfig& config) { return config.momentum == 0.0 ? 0 : 1; }
int CountStates(const AdagradConfig&) { return 1; }
int CountStates(const LionConfig&) { return 1; }
int CountStates(const OneBitLambConfig&) { return 3; }

}  // namespace

std::span<const OptimizerType> OptimizerTypes() { return kOptimizerTypes; }

Reach ReachOf(const OptimizerAlgorithm& algorithm) {
  return std::visit([]<typename Algorithm>(const Algorithm&) { return kReach<Algorithm>; },
                    algorithm);
}

int CountOptimizerStates(const OptimizerConfig& optimizer) {
  return std::visit([](const auto& each) { return CountStates(each); }, optimizer.algorithm);
}

}  // namespace ds::config
