#include "runtime/optim/schedule/torch_schedules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>

namespace ds::optim {
namespace {

double ToDouble(std::int64_t value) { return static_cast<double>(value); }

// From 1 at 0 to 0 at 1, along half a period.
double CosineFall(double progress) { return (1 + std::cos(std::numbers::pi * progress)) / 2; }

double Power(double base, std::int64_t exponent) { return std::pow(base, ToDouble(exponent)); }

// What a cycle's height is multiplied by.
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

// A stretch of OneCycleLR, up to and including update index `end`.
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
    // A phase without length is over at once.
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

}  // namespace

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
  const double progress = ToDouble(std::min(s.total_iters, advances)) / ToDouble(s.total_iters);
  return {.lr = base_lr * (s.start_factor + (s.end_factor - s.start_factor) * progress)};
}

ScheduledValues ValuesOf(const config::ExponentialLr& s, double base_lr, std::int64_t advances) {
  return {.lr = base_lr * Power(s.gamma, advances)};
}

ScheduledValues ValuesOf(const config::PolynomialLr& s, double base_lr, std::int64_t advances) {
  if (s.total_iters == 0) return {.lr = base_lr};
  const double progress = ToDouble(std::min(s.total_iters, advances)) / ToDouble(s.total_iters);
  return {.lr = base_lr * std::pow(1.0 - progress, s.power)};
}

ScheduledValues ValuesOf(const config::CosineAnnealingLr& s, double base_lr,
                         std::int64_t advances) {
  const double progress = ToDouble(advances) / ToDouble(s.t_max);
  return {.lr = s.eta_min + (base_lr - s.eta_min) * CosineFall(progress)};
}

ScheduledValues ValuesOf(const config::CosineAnnealingWarmRestarts& s, double base_lr,
                         std::int64_t advances) {
  std::int64_t period = s.t_0;
  std::int64_t position = advances;
  if (s.t_mult == 1) position %= period;
  while (position >= period) {
    position -= period;
    period *= s.t_mult;
  }
  const double progress = ToDouble(position) / ToDouble(period);
  return {.lr = s.eta_min + (base_lr - s.eta_min) * CosineFall(progress)};
}

ScheduledValues ValuesOf(const config::CyclicLr& s, double /*base_lr*/, std::int64_t advances) {
  const double total = ToDouble(s.step_size_up + s.step_size_down);
  const double ratio = ToDouble(s.step_size_up) / total;
  const double cycle = std::floor(1 + ToDouble(advances) / total);
  const double x = 1.0 + ToDouble(advances) / total - cycle;
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
  const double total = ToDouble(s.total_steps);
  const Phase rise{s.pct_start * total - 1, first_lr, s.max_lr, s.max_momentum, s.base_momentum};
  const double index = ToDouble(advances);
  if (!s.three_phase) {
    const Phase fall{total - 1, s.max_lr, last_lr, s.base_momentum, s.max_momentum};
    return InPhases(s, std::array{rise, fall}, index);
  }
  const Phase fall{2 * s.pct_start * total - 2, s.max_lr, first_lr, s.base_momentum,
                   s.max_momentum};
  const Phase end{total - 1, first_lr, last_lr, s.max_momentum, s.max_momentum};
  return InPhases(s, std::array{rise, fall, end}, index);
}

}  // namespace ds::optim
