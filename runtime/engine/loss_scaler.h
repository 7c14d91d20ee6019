#pragma once

// LossScaler computes the loss scale: the factor of the loss that keeps fp16 gradients from
// underflow and overflow. A pure state machine: the caller reports after every step whether the
// gradients overflowed, and reads the scale of the next step. All ranks report the same, so all
// have the same scale.
//
// A static scale never changes. A dynamic scale halves at an overflow, and doubles after each
// `window` steps in a row without one (clean steps). Three rules differ in the details:
//   ZeRO, DeepSpeed's rule for stages 1 to 3: the scale has `hysteresis` lives. An overflow takes
//   one life; when only one is left, it halves the scale instead. Doubling restores all lives; with
//   consecutive_hysteresis every clean step does. An overflow at the minimum is an error.
//   Stage 0, DeepSpeed's rule without ZeRO: every overflow halves the scale, down to the minimum,
//   where it stays.
//   GradScaler, PyTorch's rule, for torch_autocast: as ZeRO's with one life.
// PyTorch's rule counts all clean steps. DeepSpeed's rules do not count the first one of the run
// and the first one after an overflow.

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
  bool first_step_counts = false;  // the first clean step counts in the window, as in PyTorch
};

class LossScaler {
 public:
  explicit LossScaler(const LossScaleRule& rule);

  bool dynamic() const { return rule_.dynamic; }
  // The scale to use until the next Update().
  double scale() const { return scale_; }

  // Call after each step, skipped steps included. Fails if the scale would have to go below the
  // minimum, and then leaves it unchanged.
  Status Update(bool overflow);

  // Describes for the user how the last Update(), of an overflow, changed the scale. `before` is
  // the scale before it: "the loss scale changes from 65536 to 32768".
  std::string DescribeOverflow(double before) const;

  // State for checkpoints. LoadState fails on an invalid state. A static scaler keeps its own
  // scale. A dynamic one ignores the state of a static one: the run had another precision before.
  nlohmann::json State() const;
  Status LoadState(const nlohmann::json& state);

 private:
  Status Shrink();
  void Grow();

  LossScaleRule rule_;
  double scale_;
  std::int64_t steps_ = 0;           // number of updates
  std::int64_t last_overflow_ = -1;  // index of its update, from 0; -1: none
  std::int64_t lives_;
};

// Makes the scaler for a ds_config: a static scale of 1 without fp16. The configured ZeRO stage
// selects between DeepSpeed's two dynamic rules, as in DeepSpeed, even if nothing is really
// sharded. torch_autocast in float16 uses PyTorch's rule with its defaults at every stage.
LossScaler MakeLossScaler(const config::DsConfig& config);

}  // namespace ds::precision
