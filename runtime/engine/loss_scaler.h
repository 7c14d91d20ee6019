#pragma once

// LossScaler: by how much the loss is multiplied so that fp16 gradients neither vanish nor
// overflow. A pure state machine: told after every step whether the gradients overflowed, it
// answers with the scale of the next step. Numbers only; the same on every rank because they are
// told the same.
//
// Three rules. Two are DeepSpeed's: with a window of w steps, a clean step grows the scale twofold
// when the steps since the last overflow (not counting the first) are a multiple of w.
//   ZeRO (stages 1 to 3): an overflow takes one of `hysteresis` lives; with one left it halves the
//   scale instead. Growth refills the lives, in consecutive mode every clean step does. An overflow
//   at the minimum ends the run.
//   Stage 0: every overflow halves the scale, down to the minimum, where it stays.
// PyTorch's GradScaler, for torch_autocast: as ZeRO's with one life, but the first step counts,
// too. A static scale never moves.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"

namespace ds::precision {

struct LossScaleRule {
  bool dynamic = false;
  double initial_scale = 1.0;  // the scale itself when not dynamic
  std::int64_t window = 1000;
  double minimum = 1.0;
  // Lives, at least 1; without a value the rule of stage 0.
  std::optional<std::int64_t> hysteresis;
  bool consecutive_hysteresis = false;
  bool first_step_counts = false;  // towards the window, as in PyTorch
};

class LossScaler {
 public:
  explicit LossScaler(const LossScaleRule& rule);

  bool dynamic() const { return rule_.dynamic; }
  // The scale of the step in progress.
  double scale() const { return scale_; }

  // After a step. Fails when the scale would have to go below the minimum; it then is as before.
  Status Update(bool overflow);

  // Says how the scale, which was `before`, took the overflow of the last Update(): "the loss scale
  // goes from 65536 to 32768".
  std::string DescribeOverflow(double before) const;

  // For checkpoints. LoadState refuses what is no such state; a static scaler keeps its own scale
  // whatever it is given, and a dynamic one what it starts with when given a static one's.
  nlohmann::json State() const;
  Status LoadState(const nlohmann::json& state);

 private:
  Status Shrink();
  void Grow();

  LossScaleRule rule_;
  double scale_;
  std::int64_t steps_ = 0;
  std::int64_t last_overflow_ = -1;  // a step's number, from 0
  std::int64_t lives_;
};

// Makes the scaler that a ds_config asks for: a static scale of 1 without fp16. Which of
// DeepSpeed's two dynamic rules holds is decided by the configured ZeRO stage, as there, not by
// what is really sharded. torch_autocast in float16 has a rule of its own, PyTorch's with its
// defaults, at every stage.
LossScaler MakeLossScaler(const config::DsConfig& config);

}  // namespace ds::precision
