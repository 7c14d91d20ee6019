#include "runtime/plan/schedule/lr_schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>
#include <string>
#include <variant>

namespace ds::optim {
namespace {

double AsDouble(std::int64_t value) { return static_cast<double>(value); }

ScheduledValues ValuesOf(const config::ConstantRate& /*s*/, double base_lr,
                         std::int64_t /*advances*/) {
  return {.lr = base_lr};
}

ScheduledValues ValuesOf(const config::LrRangeTest& s, double /*base_lr*/, std::int64_t advances) {
  const double intervals = AsDouble(advances) / AsDouble(s.step_size);
  return {.lr = s.min_lr * (1 + s.step_rate * (s.staircase ? std::floor(intervals) : intervals))};
}

// Returns the progress of the ramps at update index `advances`, from 0 to 1.
double CycleHeight(const config::OneCycle& s, std::int64_t advances) {
  const std::int64_t total = s.first_step_size + s.second_step_size;
  const double ratio = AsDouble(s.first_step_size) / AsDouble(total);
  const double cycles = AsDouble(advances) / AsDouble(total);
  const double x = 1. + cycles - std::floor(1 + cycles);
  const bool rises = x <= ratio;
  const std::int64_t stairs = rises ? s.first_stair_count : s.second_stair_count;
  if (stairs <= 0) return rises ? x / ratio : (x - 1) / (ratio - 1);
  // Staircase steps are counted in integer updates, so rounding cannot move an edge.
  const std::int64_t at = advances % total;
  const std::int64_t stair = at <= s.first_step_size ? at * stairs / s.first_step_size
                                                     : (total - at) * stairs / s.second_step_size;
  return AsDouble(stair) / AsDouble(stairs);
}

ScheduledValues AfterCycle(const config::OneCycle& s, std::int64_t updates) {
  ScheduledValues values{.lr = s.min_lr};
  if (s.cycle_momentum) values.momentum = s.max_mom;
  if (s.decay_step_size == 0) return values;
  const double intervals = AsDouble(updates) / AsDouble(s.decay_step_size);
  values.lr = s.min_lr / (1 + s.decay_lr_rate * intervals);
  if (s.cycle_momentum) values.momentum = s.max_mom * (1 + s.decay_mom_rate * intervals);
  return values;
}

ScheduledValues ValuesOf(const config::OneCycle& s, double /*base_lr*/, std::int64_t advances) {
  const std::int64_t total = s.first_step_size + s.second_step_size;
  if (advances > total) return AfterCycle(s, advances - total);
  const double height = CycleHeight(s, advances);
  ScheduledValues values{.lr = s.min_lr + (s.max_lr - s.min_lr) * height};
  if (s.cycle_momentum) values.momentum = s.max_mom - (s.max_mom - s.min_mom) * height;
  // Building the schedule sets the other end of the range.
  if (s.cycle_momentum && advances == 0) values.momentum = s.min_mom;
  return values;
}

double WarmupFraction(config::WarmupType type, std::int64_t steps, std::int64_t index) {
  if (type == config::WarmupType::kLinear) return AsDouble(index) / AsDouble(steps);
  return 1.0 / std::log(AsDouble(steps)) * std::log(AsDouble(index + 1));
}

ScheduledValues ValuesOf(const config::WarmupLr& s, double base_lr, std::int64_t advances) {
  const std::int64_t index = advances - 1;
  if (index < 0) return {.lr = s.min_lr};
  const std::int64_t steps = std::max<std::int64_t>(2, s.num_steps);
  double fraction = 1.0;
  if (index < steps) {
    fraction = WarmupFraction(s.type, steps, index);
  } else if (s.total_num_steps) {
    const double left = AsDouble(*s.total_num_steps - index);
    fraction = std::max(0.0, left / std::max(1.0, AsDouble(*s.total_num_steps - steps)));
  }
  return {.lr = s.min_lr + (s.max_lr.value_or(base_lr) - s.min_lr) * fraction};
}

ScheduledValues ValuesOf(const config::WarmupCosineLr& s, double base_lr, std::int64_t advances) {
  const std::int64_t index = advances - 1;
  if (index < 0) return {.lr = 0.0};
  const std::int64_t steps = std::max<std::int64_t>(2, s.num_steps);
  if (index < steps) {
    const double fraction = WarmupFraction(s.type, steps, index);
    return {.lr = base_lr * (s.min_ratio + fraction * (1. - s.min_ratio))};
  }
  const std::int64_t length = std::max<std::int64_t>(1, s.total_num_steps - steps);
  const double progress = std::min(1.0, AsDouble(index - steps + 1) / AsDouble(length));
  const double fall = (1 + std::cos(std::numbers::pi * progress)) / 2;
  return {.lr = base_lr * std::max(0.0, s.cos_min_ratio + (1. - s.cos_min_ratio) * fall)};
}

// PyTorch's schedulers in closed form: the result of a chain of `advances` calls of step(), which
// differs from it by rounding only. If PyTorch's chain and its own closed form disagree
// (total_iters 0), the chain is authoritative, because training uses it.

// Falls from 1 at 0 to 0 at 1, along half a cosine period.
double CosineFall(double progress) { return (1 + std::cos(std::numbers::pi * progress)) / 2; }

double Power(double base, std::int64_t exponent) { return std::pow(base, AsDouble(exponent)); }

// Returns the factor of a cycle's height.
double CyclicScale(const config::CyclicLr& s, double cycle, std::int64_t advances) {
  switch (s.mode) {
    case config::CyclicMode::kTriangular:
      return 1.0;
    case config::CyclicMode::kTriangular2:
      return 1 / std::pow(2.0, cycle - 1);
    case config::CyclicMode::kExpRange:
      return Power(s.gamma, advances);
  }
  return 1.0;
}

// A phase of OneCycleLR, up to and including update index `end`.
struct Phase {
  double end;
  double from_lr, to_lr;
  double from_momentum, to_momentum;
};

double Anneal(const config::OneCycleLr& s, double from, double to, double progress) {
  if (s.linear_anneal) return (to - from) * progress + from;
  return to + (from - to) * CosineFall(progress);
}

ScheduledValues InPhases(const config::OneCycleLr& s, std::span<const Phase> phases, double index) {
  double start = 0.0;
  for (const Phase& phase : phases) {
    if (index > phase.end && &phase != &phases.back()) {
      start = phase.end;
      continue;
    }
    // A phase of zero length ends at once.
    const double length = phase.end - start;
    const double progress = length == 0.0 ? 1.0 : (index - start) / length;
    ScheduledValues values{.lr = Anneal(s, phase.from_lr, phase.to_lr, progress)};
    if (s.cycle_momentum) {
      values.momentum = Anneal(s, phase.from_momentum, phase.to_momentum, progress);
    }
    return values;
  }
  return {};
}

ScheduledValues ValuesOf(const config::StepLr& s, double base_lr, std::int64_t advances) {
  return {.lr = base_lr * Power(s.gamma, advances / s.step_size)};
}

ScheduledValues ValuesOf(const config::MultiStepLr& s, double base_lr, std::int64_t advances) {
  const auto passed = std::count_if(s.milestones.begin(), s.milestones.end(),
                                    [&](std::int64_t at) { return at <= advances; });
  return {.lr = base_lr * Power(s.gamma, passed)};
}

ScheduledValues ValuesOf(const config::ConstantLr& s, double base_lr, std::int64_t advances) {
  const bool over = s.total_iters > 0 && advances >= s.total_iters;
  return {.lr = over ? base_lr : base_lr * s.factor};
}

ScheduledValues ValuesOf(const config::LinearLr& s, double base_lr, std::int64_t advances) {
  if (s.total_iters == 0) return {.lr = base_lr * s.start_factor};
  const double progress = AsDouble(std::min(s.total_iters, advances)) / AsDouble(s.total_iters);
  return {.lr = base_lr * (s.start_factor + (s.end_factor - s.start_factor) * progress)};
}

ScheduledValues ValuesOf(const config::ExponentialLr& s, double base_lr, std::int64_t advances) {
  return {.lr = base_lr * Power(s.gamma, advances)};
}

ScheduledValues ValuesOf(const config::PolynomialLr& s, double base_lr, std::int64_t advances) {
  if (s.total_iters == 0) return {.lr = base_lr};
  const double progress = AsDouble(std::min(s.total_iters, advances)) / AsDouble(s.total_iters);
  return {.lr = base_lr * std::pow(1.0 - progress, s.power)};
}

ScheduledValues ValuesOf(const config::CosineAnnealingLr& s, double base_lr,
                         std::int64_t advances) {
  const double progress = AsDouble(advances) / AsDouble(s.t_max);
  return {.lr = s.eta_min + (base_lr - s.eta_min) * CosineFall(progress)};
}

ScheduledValues ValuesOf(const config::CosineAnnealingWarmRestarts& s, double base_lr,
                         std::int64_t advances) {
  // Integer arithmetic that cannot overflow.
  double period = AsDouble(s.t_0);
  double position = AsDouble(s.t_mult == 1 ? advances % s.t_0 : advances);
  while (position >= period) {
    position -= period;
    period *= AsDouble(s.t_mult);
  }
  return {.lr = s.eta_min + (base_lr - s.eta_min) * CosineFall(position / period)};
}

ScheduledValues ValuesOf(const config::CyclicLr& s, double /*base_lr*/, std::int64_t advances) {
  const double total = AsDouble(s.step_size_up) + AsDouble(s.step_size_down);
  const double ratio = AsDouble(s.step_size_up) / total;
  const double cycle = std::floor(1 + AsDouble(advances) / total);
  const double x = 1.0 + AsDouble(advances) / total - cycle;
  const double height = x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
  const double scale = CyclicScale(s, cycle, advances);
  ScheduledValues values{.lr = s.base_lr + (s.max_lr - s.base_lr) * height * scale};
  if (s.cycle_momentum) {
    values.momentum = s.max_momentum - (s.max_momentum - s.base_momentum) * height * scale;
  }
  return values;
}

ScheduledValues ValuesOf(const config::OneCycleLr& s, double /*base_lr*/, std::int64_t advances) {
  const double first_lr = s.max_lr / s.div_factor;
  const double last_lr = first_lr / s.final_div_factor;
  const double total = AsDouble(s.total_steps);
  const Phase rise{s.pct_start * total - 1, first_lr, s.max_lr, s.max_momentum, s.base_momentum};
  const double index = AsDouble(advances);
  if (!s.three_phase) {
    const Phase fall{total - 1, s.max_lr, last_lr, s.base_momentum, s.max_momentum};
    return InPhases(s, std::array{rise, fall}, index);
  }
  const Phase fall{2 * s.pct_start * total - 2, s.max_lr, first_lr, s.base_momentum,
                   s.max_momentum};
  const Phase end{total - 1, first_lr, last_lr, s.max_momentum, s.max_momentum};
  return InPhases(s, std::array{rise, fall, end}, index);
}

// The schedules of transformers: its get_scheduler multiplies each group's rate by these factors.

double WarmupShare(std::int64_t warmup, std::int64_t index) {
  return AsDouble(index) / AsDouble(std::max<std::int64_t>(1, warmup));
}

// Returns the completed fraction of the decay at this index.
double DecayShare(std::int64_t warmup, std::int64_t total, std::int64_t index) {
  return AsDouble(index - warmup) / AsDouble(std::max<std::int64_t>(1, total - warmup));
}

double Waves(double cycles, double progress) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * cycles * 2.0 * progress));
}

double AtLeast(double lowest, double factor) { return factor * (1.0 - lowest) + lowest; }

double Factor(const config::HfConstantWithWarmup& s, std::int64_t index) {
  return index < s.warmup ? WarmupShare(s.warmup, index) : 1.0;
}

double Factor(const config::HfLinear& s, std::int64_t index) {
  if (index < s.warmup) return WarmupShare(s.warmup, index);
  const double length = AsDouble(std::max<std::int64_t>(1, s.total - s.warmup));
  return std::max(0.0, AsDouble(s.total - index) / length);
}

double Factor(const config::HfCosine& s, std::int64_t index) {
  if (index < s.warmup) return WarmupShare(s.warmup, index);
  const double progress = DecayShare(s.warmup, s.total, index);
  return std::max(0.0, AtLeast(s.min_rate, Waves(s.cycles, progress)));
}

double Factor(const config::HfCosineWithRestarts& s, std::int64_t index) {
  if (index < s.warmup) return WarmupShare(s.warmup, index);
  const double progress = DecayShare(s.warmup, s.total, index);
  if (progress >= 1.0) return 0.0;
  return std::max(0.0, Waves(0.5, std::fmod(s.cycles * progress, 1.0)));
}

double Factor(const config::HfCosineWarmupWithMinLr& s, std::int64_t index) {
  if (index < s.warmup) {
    if (!s.warmup_rate) return AsDouble(index + 1) / AsDouble(s.warmup);
    const double length = AsDouble(std::max<std::int64_t>(1, s.warmup - 1));
    return *s.warmup_rate + (1.0 - *s.warmup_rate) * AsDouble(index) / length;
  }
  const double progress = DecayShare(s.warmup, s.total, index + 1);
  return std::max(0.0, AtLeast(s.min_rate, Waves(s.cycles, progress)));
}

double Factor(const config::HfPolynomial& s, std::int64_t index) {
  if (index < s.warmup) return WarmupShare(s.warmup, index);
  if (index > s.total || s.total == s.warmup) return s.lr_end / s.lr;
  const double remaining = 1.0 - AsDouble(index - s.warmup) / AsDouble(s.total - s.warmup);
  return ((s.lr - s.lr_end) * std::pow(remaining, s.power) + s.lr_end) / s.lr;
}

double Factor(const config::HfInverseSqrt& s, std::int64_t index) {
  if (index < s.warmup) return WarmupShare(s.warmup, index);
  return 1.0 / std::sqrt(AsDouble(index + s.timescale - s.warmup) / AsDouble(s.timescale));
}

double Rise(config::WsdShape shape, double progress) {
  if (shape == config::WsdShape::kCosine) {
    return 0.5 * (1.0 - std::cos(std::numbers::pi * progress));
  }
  return shape == config::WsdShape::kLinear ? progress : 1.0 - std::sqrt(1.0 - progress);
}

double Fall(const config::HfWarmupStableDecay& s, double progress) {
  if (s.decay_shape == config::WsdShape::kCosine) return Waves(s.cycles, progress);
  return 1.0 - (s.decay_shape == config::WsdShape::kLinear ? progress : std::sqrt(progress));
}

double Factor(const config::HfWarmupStableDecay& s, std::int64_t index) {
  if (index < s.warmup) {
    const double rise = Rise(s.warmup_shape, WarmupShare(s.warmup, index));
    return std::max(0.0, AtLeast(s.min_ratio, rise));
  }
  const std::int64_t start = s.warmup + s.stable;
  if (index < start) return 1.0;
  if (index >= start + s.decay) return s.min_ratio;
  const double progress = AsDouble(index - start) / AsDouble(std::max<std::int64_t>(1, s.decay));
  return std::max(0.0, AtLeast(s.min_ratio, Fall(s, progress)));
}

template <typename Hf>
requires requires(const Hf& s) { Factor(s, 0); }
ScheduledValues ValuesOf(const Hf& s, double base_lr, std::int64_t advances) {
  return {.lr = base_lr * Factor(s, advances)};
}

}  // namespace

ScheduledValues ValuesAfter(const config::Schedule& schedule, double base_lr,
                            std::int64_t advances) {
  return std::visit([&](const auto& s) { return ValuesOf(s, base_lr, advances); }, schedule);
}

std::optional<std::int64_t> LastUpdate(const config::Schedule& schedule) {
  if (const auto* s = std::get_if<config::OneCycleLr>(&schedule)) return s->total_steps;
  const auto* s = std::get_if<config::OneCycle>(&schedule);
  const bool momentum_grows =
      s != nullptr && s->cycle_momentum && s->decay_step_size > 0 && s->decay_mom_rate > 0.0;
  if (!momentum_grows || s->max_mom == 0.0) return std::nullopt;
  const double until_one = (1 / s->max_mom - 1) * AsDouble(s->decay_step_size) / s->decay_mom_rate;
  if (until_one > 1e15) return std::nullopt;
  const auto after_cycle = static_cast<std::int64_t>(std::ceil(until_one)) - 1;
  return s->first_step_size + s->second_step_size + after_cycle + 1;
}

std::optional<std::int64_t> LastUpdateOf(const config::DsConfig& config) {
  std::optional<std::int64_t> first = LastUpdate(config.scheduler);
  for (const config::Schedule& schedule : config.group_schedules) {
    const auto last = LastUpdate(schedule);
    if (last) first = std::min(*last, first.value_or(*last));
  }
  return first;
}

Status CheckScheduleCovers(const config::DsConfig& config, std::int64_t steps) {
  const auto last = LastUpdateOf(config);
  if (!last || *last >= steps) return OkStatus();
  return InvalidArgumentError("the schedule of the ds_config ends after " + std::to_string(*last) +
                              " steps, and this run has " + std::to_string(steps) +
                              ": change scheduler.params or --steps");
}

}  // namespace ds::optim
