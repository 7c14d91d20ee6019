#include <string>
#include <string_view>

#include "runtime/base/check.h"
#include "runtime/config/keys/registry.h"
#include "runtime/config/sections/scheduler_section.h"

namespace ds::config {
namespace {

using Json = nlohmann::ordered_json;

std::string KeyOf(std::string_view param) { return "scheduler.params." + std::string(param); }

// Reads scheduler.params, whose names the members' readers below give, for one parameter group.
class Params {
 public:
  Params(const Values& values, std::size_t group) : values_(values), group_(group) {}

  Json operator[](std::string_view name) const {
    const Json value = values_.Get(KeyOf(name));
    return FindSetting(KeyOf(name))->per_group && value.is_array() ? value.at(group_) : value;
  }
  // `name` unless that is null.
  Json Or(std::string_view name, std::string_view otherwise) const {
    Json value = (*this)[name];
    return value.is_null() ? (*this)[otherwise] : value;
  }
  bool IsGiven(std::string_view name) const { return values_.IsGiven(KeyOf(name)); }
  WarmupType warmup_type() const {
    return (*this)["warmup_type"] == "linear" ? WarmupType::kLinear : WarmupType::kLog;
  }

 private:
  const Values& values_;
  std::size_t group_;
};

Schedule FillLrRangeTest(const Params& p) {
  return LrRangeTest{.min_lr = p["lr_range_test_min_lr"],
                     .step_size = p["lr_range_test_step_size"],
                     .step_rate = p["lr_range_test_step_rate"],
                     .staircase = p["lr_range_test_staircase"]};
}

Schedule FillOneCycle(const Params& p) {
  return OneCycle{.min_lr = p["cycle_min_lr"],
                  .max_lr = p["cycle_max_lr"],
                  .decay_lr_rate = p["decay_lr_rate"],
                  .first_step_size = p["cycle_first_step_size"],
                  .second_step_size = p.Or("cycle_second_step_size", "cycle_first_step_size"),
                  .first_stair_count = p["cycle_first_stair_count"],
                  .second_stair_count = p.Or("cycle_second_stair_count", "cycle_first_stair_count"),
                  .decay_step_size = p["decay_step_size"],
                  .cycle_momentum = p["cycle_momentum"],
                  .min_mom = p["cycle_min_mom"],
                  .max_mom = p["cycle_max_mom"],
                  .decay_mom_rate = p["decay_mom_rate"]};
}

WarmupLr Warmup(const Params& p) {
  WarmupLr warmup{
      .min_lr = p["warmup_min_lr"], .num_steps = p["warmup_num_steps"], .type = p.warmup_type()};
  if (p.IsGiven("warmup_max_lr")) warmup.max_lr = p["warmup_max_lr"].get<double>();
  return warmup;
}

Schedule FillWarmup(const Params& p) { return Warmup(p); }

Schedule FillWarmupDecay(const Params& p) {
  WarmupLr warmup = Warmup(p);
  warmup.max_lr = p["warmup_max_lr"].get<double>();
  warmup.total_num_steps = p["total_num_steps"].get<std::int64_t>();
  return warmup;
}

Schedule FillWarmupCosine(const Params& p) {
  return WarmupCosineLr{.total_num_steps = p["total_num_steps"],
                        .min_ratio = p["warmup_min_ratio"],
                        .num_steps = p["warmup_num_steps"],
                        .cos_min_ratio = p["cos_min_ratio"],
                        .type = p.warmup_type()};
}

Schedule FillStep(const Params& p) {
  return StepLr{.step_size = p["step_size"], .gamma = p["gamma"]};
}

Schedule FillMultiStep(const Params& p) {
  return MultiStepLr{.milestones = p["milestones"], .gamma = p["gamma"]};
}

Schedule FillConstant(const Params& p) {
  return ConstantLr{.factor = p["factor"], .total_iters = p["total_iters"]};
}

Schedule FillLinear(const Params& p) {
  return LinearLr{.start_factor = p["start_factor"],
                  .end_factor = p["end_factor"],
                  .total_iters = p["total_iters"]};
}

Schedule FillExponential(const Params& p) { return ExponentialLr{.gamma = p["gamma"]}; }

Schedule FillPolynomial(const Params& p) {
  return PolynomialLr{.total_iters = p["total_iters"], .power = p["power"]};
}

Schedule FillCosineAnnealing(const Params& p) {
  return CosineAnnealingLr{.t_max = p["T_max"], .eta_min = p["eta_min"]};
}

Schedule FillWarmRestarts(const Params& p) {
  return CosineAnnealingWarmRestarts{
      .t_0 = p["T_0"], .t_mult = p["T_mult"], .eta_min = p["eta_min"]};
}

Schedule FillCyclic(const Params& p) {
  CyclicLr cyclic{.base_lr = p["base_lr"],
                  .max_lr = p["max_lr"],
                  .step_size_up = p["step_size_up"],
                  .step_size_down = p.Or("step_size_down", "step_size_up"),
                  .gamma = p["gamma"],
                  .cycle_momentum = p["cycle_momentum"],
                  .base_momentum = p["base_momentum"],
                  .max_momentum = p["max_momentum"]};
  if (p["mode"] == "triangular2") cyclic.mode = CyclicMode::kTriangular2;
  if (p["mode"] == "exp_range") cyclic.mode = CyclicMode::kExpRange;
  return cyclic;
}

Schedule FillOneCycleLr(const Params& p) {
  const Json total = p["total_steps"];
  return OneCycleLr{.max_lr = p["max_lr"],
                    .total_steps = total.is_null() ? p["epochs"].get<std::int64_t>() *
                                                         p["steps_per_epoch"].get<std::int64_t>()
                                                   : total.get<std::int64_t>(),
                    .pct_start = p["pct_start"],
                    .linear_anneal = p["anneal_strategy"] == "linear",
                    .cycle_momentum = p["cycle_momentum"],
                    .base_momentum = p["base_momentum"],
                    .max_momentum = p["max_momentum"],
                    .div_factor = p["div_factor"],
                    .final_div_factor = p["final_div_factor"],
                    .three_phase = p["three_phase"]};
}

struct Filler {
  std::string_view type;
  Schedule (*fill)(const Params& params);
};
constexpr Filler kFillers[] = {{"LRRangeTest", FillLrRangeTest},
                               {"OneCycle", FillOneCycle},
                               {"WarmupLR", FillWarmup},
                               {"WarmupDecayLR", FillWarmupDecay},
                               {"WarmupCosineLR", FillWarmupCosine},
                               {"StepLR", FillStep},
                               {"MultiStepLR", FillMultiStep},
                               {"ConstantLR", FillConstant},
                               {"LinearLR", FillLinear},
                               {"ExponentialLR", FillExponential},
                               {"PolynomialLR", FillPolynomial},
                               {"CosineAnnealingLR", FillCosineAnnealing},
                               {"CosineAnnealingWarmRestarts", FillWarmRestarts},
                               {"CyclicLR", FillCyclic},
                               {"OneCycleLR", FillOneCycleLr}};

}  // namespace

Schedule FillSchedule(const Values& values, std::size_t group) {
  const Json type = values.Get("scheduler.type");
  if (type.is_null()) return ConstantRate{};
  for (const auto& [name, fill] : kFillers) {
    if (type == name) return fill(Params(values, group));
  }
  CheckFailed(__FILE__, __LINE__, "a schedule that the rules accept", type.dump());
}

}  // namespace ds::config
