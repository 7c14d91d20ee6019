#pragma once

// LossScaler computes the factor of the loss that keeps fp16 gradients from underflow and overflow.
// A pure state machine: the caller reports after every step whether the gradients overflowed, and
// reads the scale of the next step. All ranks report the same, so all have the same scale.
//
// There are three rules. Two are DeepSpeed's: with a window of w steps, a clean step doubles the
// scale if the number of steps since the last overflow (excluding the first) is a multiple of w.
//   ZeRO (stages 1 to 3): an overflow takes one of `hysteresis` lives; with one left it halves the
//   scale instead. Growth refills the lives; in consecutive mode every clean step does. An overflow
//   at the minimum ends the run.
//   Stage 0: every overflow halves the scale, down to the minimum, where it stays.
// The third is PyTorch's GradScaler, for torch_autocast: as ZeRO's with one life, but the first
// step counts, too. A static scale never changes.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runtime/base/status.h"
#include "runtime/config/ds_config.h"

namespace ds::precision {

struct LossScaleRule {
  bool dynamic = false;
  double initial_scale = 1.0;  // the scale itself if not dynamic
  std::int64_t window = 1000;
  double minimum = 1.0;
  // Lives, at least 1; nullopt: the rule of stage 0.
  std::optional<std::int64_t> hysteresis;
  bool consecutive_hysteresis = false;
  bool first_step_counts = false;  // in the window, as in PyTorch
};

class LossScaler {
 public:
  explicit LossScaler(const LossScaleRule& rule);

  bool dynamic() const { return rule_.dynamic; }
  // The scale of the step in progress.
  double scale() const { return scale_; }

  // Call after each step. Fails if the scale would have to go below the minimum, and then leaves it
  // unchanged.
  Status Update(bool overflow);

  // Describes the effect of the overflow at the last Update() on the scale, which was `before`:
  // "the loss scale goes from 65536 to 32768".
  std::string DescribeOverflow(double before) const;

  // State for checkpoints. LoadState fails on an invalid state. A static scaler ignores the loaded
  // scale; a dynamic one keeps its initial state if the loaded one is a static scaler's.
  nlohmann::json State() const;
  Status LoadState(const nlohmann::json& state);

 private:
  Status Shrink();
  void Grow();

  LossScaleRule rule_;
  double scale_;
  std::int64_t steps_ = 0;
  std::int64_t last_overflow_ = -1;  // a step index, from 0
  std::int64_t lives_;
};

// Makes the scaler for a ds_config: a static scale of 1 without fp16. The configured ZeRO stage
// selects between DeepSpeed's two dynamic rules, as in DeepSpeed, even if nothing is really
// sharded. torch_autocast in float16 uses PyTorch's rule with its defaults at every stage.
LossScaler MakeLossScaler(const config::DsConfig& config);

}  // namespace ds::precision
