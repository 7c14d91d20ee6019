#pragma once

// RotaryAngles: the cosines and sines that turn the heads of a micro-batch, one for all layers of a
// model that turn alike. It keeps the last ones it made.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/models/batch.h"
#include "runtime/models/spec/rope_spec.h"

namespace ds::models {

class RotaryAngles {
 public:
  RotaryAngles(const RopeSpec& rope, std::int64_t head_width)
      : rope_(rope), head_width_(head_width) {}

  // `x` [B, heads, S, head width] of this batch with the heads of each token turned by its
  // position.
  at::Tensor Turn(const at::Tensor& x, const Batch& batch);

 private:
  // Makes cos_ and sin_, [S, half] or [B, S, half], unless they are there.
  void Prepare(const at::Tensor& x, const Batch& batch);

  RopeSpec rope_;
  std::int64_t head_width_;
  // The tables were made of these, which are held so that no other tensor has their addresses.
  at::Tensor positions_, documents_;
  std::int64_t tokens_ = 0;
  at::Tensor cos_, sin_;
};

}  // namespace ds::models
