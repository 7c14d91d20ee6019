#pragma once

// Rotary position embedding (Su et al., 2021) in transformers' layout: the two halves of a head are
// the two coordinates that are rotated.
//
// One table per model, shared by its layers. Threads: belongs to one rank, like the model.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runtime/models/model_config.h"

namespace ds::models {

class Rotary {
 public:
  Rotary(const RopeConfig& rope, std::int64_t head_width);

  // `x` [B, heads, S, head width] with position s rotated by s times the frequencies.
  at::Tensor Apply(const at::Tensor& x);

 private:
  // Makes cos_ and sin_ [S, head width] for x's length, device and dtype unless they are there.
  void Prepare(const at::Tensor& x);

  at::Tensor frequencies_;  // [head width / 2] fp32, CPU
  at::Tensor cos_, sin_;
};

}  // namespace ds::models
