#pragma once

// Adam and AdamW over flat fp32 views, one pass over memory per update.
//
// With gradient g (after scaling by gradient_scale), step t counted from 1:
//   AdamW: p -= lr * weight_decay * p        Adam: g += weight_decay * p
//   m = m + (1 - beta1) (g - m)              v = beta2 v + (1 - beta2) g^2
//   p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
// as PyTorch's fused AdamW computes it (without bias_correction both corrections are 1).
// Every element is computed alike wherever the views are cut, so sharding does not change a bit.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/config/ds_config.h"

namespace ds::optim {

// Equal lengths, 1-D, contiguous, on one device.
struct AdamViews {
  at::Tensor parameter;   // fp32
  at::Tensor gradient;    // fp32 or bf16; unchanged on the CPU, clobbered elsewhere
  at::Tensor exp_avg;     // fp32
  at::Tensor exp_avg_sq;  // fp32
  at::Tensor published;   // bf16 copy of `parameter` to write, or undefined
};

struct AdamStep {
  double lr = 0.0;
  double gradient_scale = 1.0;  // the clip factor
  std::int64_t step = 1;        // this update's number
};

void ApplyAdam(const config::OptimizerConfig& config, const AdamStep& step, const AdamViews& views);

}  // namespace ds::optim
