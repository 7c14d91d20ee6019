#pragma once

// The schedules of transformers' get_scheduler, under its names: "linear", "cosine" and others.
// transformers' Trainer uses them where a ds_config has no scheduler.
//
// Lengths are counted in updates. A rate is a fraction of the parameter group's own rate. `warmup`
// is the length of the warm-up (0: none), `total` is the update at which the decay ends.
// schedule.cc fills the fields; plan/schedule has the formulas.

#include <cstdint>
#include <optional>

namespace ds::config {

struct HfConstantWithWarmup {
  std::int64_t warmup = 0;
};

struct HfLinear {
  std::int64_t warmup = 0;
  std::int64_t total = 0;
};

// cosine and cosine_with_min_lr.
struct HfCosine {
  std::int64_t warmup = 0;
  std::int64_t total = 0;
  double cycles = 0.5;
  double min_rate = 0.0;
};

struct HfCosineWithRestarts {
  std::int64_t warmup = 0;
  std::int64_t total = 0;
  double cycles = 1.0;
};

// cosine_warmup_with_min_lr: its warm-up does not start from 0.
struct HfCosineWarmupWithMinLr {
  std::int64_t warmup = 0;
  std::int64_t total = 0;
  double cycles = 0.5;
  double min_rate = 0.0;
  std::optional<double> warmup_rate;  // the first rate; absent: 1 / warmup
};

struct HfPolynomial {
  std::int64_t warmup = 0;
  std::int64_t total = 0;
  double lr = 0.0;  // the optimizer's; `lr_end` is a fraction of it
  double lr_end = 1e-7;
  double power = 1.0;
};

struct HfInverseSqrt {
  std::int64_t warmup = 0;
  std::int64_t timescale = 10000;
};

enum class WsdShape { kLinear, kCosine, kOneMinusSqrt };

struct HfWarmupStableDecay {
  std::int64_t warmup = 0;
  std::int64_t stable = 0;  // below 0 the decay begins before its start, as in transformers
  std::int64_t decay = 0;
  WsdShape warmup_shape = WsdShape::kLinear;
  WsdShape decay_shape = WsdShape::kCosine;
  double min_ratio = 0.0;
  double cycles = 0.5;
};

}  // namespace ds::config
