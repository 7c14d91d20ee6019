#pragma once

// Schedule describes how the learning rate changes, counted in updates. There is one struct per
// scheduler.type, with fields named after scheduler.params and filled by schedule.cc. plan/schedule
// has the formulas. The defaults come from DeepSpeed, PyTorch and transformers; a field without one
// is required.

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "runtime/config/transformers_schedule.h"

namespace ds::config {

struct ConstantRate {};  // no scheduler: the optimizer's lr

// DeepSpeed's schedules.
struct LrRangeTest {
  double min_lr = 1e-3;
  std::int64_t step_size = 2000;
  double step_rate = 1.0;
  bool staircase = false;
};

struct OneCycle {
  double min_lr = 0.0;
  double max_lr = 0.0;
  double decay_lr_rate = 0.0;
  std::int64_t first_step_size = 2000;
  std::int64_t second_step_size = 2000;  // first_step_size unless given
  std::int64_t first_stair_count = 0;    // 0: continuous
  std::int64_t second_stair_count = 0;   // first_stair_count unless given
  std::int64_t decay_step_size = 0;      // 0: no decay after the cycle
  bool cycle_momentum = true;
  double min_mom = 0.8;
  double max_mom = 0.9;
  double decay_mom_rate = 0.0;
};

enum class WarmupType { kLog, kLinear };

struct WarmupLr {
  double min_lr = 0.0;
  std::optional<double> max_lr;  // the lr of each parameter group unless given
  std::int64_t num_steps = 1000;
  WarmupType type = WarmupType::kLog;
  std::optional<std::int64_t> total_num_steps;  // WarmupDecayLR: the rate reaches 0 at this update
};

struct WarmupCosineLr {
  std::int64_t total_num_steps = 0;
  double min_ratio = 0.0;
  std::int64_t num_steps = 1000;
  double cos_min_ratio = 1e-4;
  WarmupType type = WarmupType::kLog;
};

// PyTorch's schedules.
struct StepLr {
  std::int64_t step_size = 1;
  double gamma = 0.1;
};

struct MultiStepLr {
  std::vector<std::int64_t> milestones;  // in any order; one that occurs twice counts twice
  double gamma = 0.1;
};

struct ConstantLr {
  double factor = 1.0 / 3;
  std::int64_t total_iters = 5;
};

struct LinearLr {
  double start_factor = 1.0 / 3;
  double end_factor = 1.0;
  std::int64_t total_iters = 5;
};

struct ExponentialLr {
  double gamma = 1.0;
};

struct PolynomialLr {
  std::int64_t total_iters = 5;
  double power = 1.0;
};

struct CosineAnnealingLr {
  std::int64_t t_max = 1;
  double eta_min = 0.0;
};

struct CosineAnnealingWarmRestarts {
  std::int64_t t_0 = 1;
  std::int64_t t_mult = 1;
  double eta_min = 0.0;
};

enum class CyclicMode { kTriangular, kTriangular2, kExpRange };

struct CyclicLr {
  double base_lr = 0.0;
  double max_lr = 0.0;
  std::int64_t step_size_up = 2000;
  std::int64_t step_size_down = 2000;  // step_size_up unless given
  CyclicMode mode = CyclicMode::kTriangular;
  double gamma = 1.0;
  bool cycle_momentum = true;
  double base_momentum = 0.8;
  double max_momentum = 0.9;
};

struct OneCycleLr {
  double max_lr = 0.0;
  std::int64_t total_steps = 0;  // or epochs * steps_per_epoch
  double pct_start = 0.3;
  bool linear_anneal = false;  // otherwise along a cosine
  bool cycle_momentum = true;
  double base_momentum = 0.85;
  double max_momentum = 0.95;
  double div_factor = 25.0;
  double final_div_factor = 1e4;
  bool three_phase = false;
};

using Schedule =
    std::variant<ConstantRate, LrRangeTest, OneCycle, WarmupLr, WarmupCosineLr, StepLr, MultiStepLr,
                 ConstantLr, LinearLr, ExponentialLr, PolynomialLr, CosineAnnealingLr,
                 CosineAnnealingWarmRestarts, CyclicLr, OneCycleLr, HfConstantWithWarmup, HfLinear,
                 HfCosine, HfCosineWithRestarts, HfCosineWarmupWithMinLr, HfPolynomial,
                 HfInverseSqrt, HfWarmupStableDecay>;

}  // namespace ds::config
